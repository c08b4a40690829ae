//! Decides whose wheels and layers are taken from a shared cache, if the configuration names a key.
//!
//! Whoever has a repository's password can write to it. With `cache.verify` only wheels and layers that this
//! key has signed are taken; `cache.key` signs what is pushed.

use stackforge_distribute::evidence::{
    self, EvidenceError, KeyError, PrivateKey, PublicKey, Trust,
};
use stackforge_stack::config::Config;
use stackforge_transfer::registry::{Descriptor, Reference, Registry};
use stackforge_types::Digest;

pub(super) struct Keys {
    trust: Option<Trust>,
    own: Option<PrivateKey>,
}

impl Keys {
    /// # Errors
    /// A key cannot be read: then the cache is not used at all.
    pub fn of(config: &Config) -> Result<Self, KeyError> {
        let cache = &config.cache;
        let trust = cache.verify.as_deref().map(PublicKey::read).transpose()?;
        Ok(Self {
            trust: trust.map(|key| Trust::new(key, Vec::new())),
            own: cache.key.as_deref().map(PrivateKey::read).transpose()?,
        })
    }

    /// Whether only signed content is taken.
    pub fn verifies(&self) -> bool {
        self.trust.is_some()
    }

    /// Whether pushed content is signed.
    pub fn signs(&self) -> bool {
        self.own.is_some()
    }

    /// Fails if there is a trusted key and it has not signed this digest.
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

    /// Signs pushed content, if there is a key for that.
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
