//! Whose work is taken from a shared cache, where the configuration names a key.
//!
//! A repository is written by whoever has its password. With `cache.verify` only what that key has signed is
//! taken, wheels and layers alike; `cache.key` signs what is pushed.

use crate::config::Config;
use crate::evidence::{self, EvidenceError, KeyError, PrivateKey, PublicKey, Trust};
use stackforge_transfer::registry::{Descriptor, Reference, Registry};
use stackforge_types::Digest;

pub(super) struct Keys {
    trust: Option<Trust>,
    own: Option<PrivateKey>,
}

impl Keys {
    /// # Errors
    /// A key that cannot be read: then the cache is not used at all.
    pub fn of(config: &Config) -> Result<Self, KeyError> {
        let cache = &config.cache;
        let trust = cache.verify.as_deref().map(PublicKey::read).transpose()?;
        Ok(Self {
            trust: trust.map(|key| Trust::new(key, Vec::new())),
            own: cache.key.as_deref().map(PrivateKey::read).transpose()?,
        })
    }

    /// Whether anything has to be signed.
    pub fn verifies(&self) -> bool {
        self.trust.is_some()
    }

    /// Whether what is pushed is signed.
    pub fn signs(&self) -> bool {
        self.own.is_some()
    }

    /// Refuses what the trusted key has not signed, if there is one.
    pub async fn check(
        &self,
        registry: &Registry,
        reference: &Reference,
        digest: &Digest,
    ) -> Result<(), EvidenceError> {
        if let Some(trust) = &self.trust {
            evidence::verify(registry, reference, digest, trust).await?;
        }
        Ok(())
    }

    /// Signs what was pushed, if there is a key for it.
    pub async fn sign(
        &self,
        registry: &Registry,
        reference: &Reference,
        manifest: &Descriptor,
    ) -> Result<(), EvidenceError> {
        if let Some(key) = &self.own {
            evidence::sign(registry, reference.repository(), manifest, key, None).await?;
        }
        Ok(())
    }
}
