//! Compares objects with what their stack promises.
//!
//! In: [`Promise`]. Out: findings about objects that need something else, if it is not in the tree: those of a
//! wheel that was just compiled, say. There are none for an environment: [`super::missing`] and
//! [`super::torch`] see what its objects get, and which of a package's alternatives for several CUDA releases
//! is loaded.

use super::finding::Finding;
use super::missing::Cuda;
use super::world::World;
use stackforge_stack::diag::{Diagnostic, codes};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promise {
    /// Major version of CUDA.
    pub cuda: Option<u32>,
    /// Whether torch was built with the new C++11 ABI.
    pub cxx11_abi: Option<bool>,
}

pub fn check(world: &World<'_>, promise: &Promise, findings: &mut Vec<Finding>) {
    if world.environment {
        return;
    }
    let cuda = Cuda::of(world);
    for item in world.items {
        let mut report = |code, message| {
            findings.push(Finding::new(&item.path, Diagnostic::error(code, message)));
        };
        if let Some(major) = promise.cuda {
            for name in &item.object.needed {
                let other = cuda.major(name).filter(|other| *other != major);
                if let Some(other) = other {
                    report(
                        codes::OTHER_CUDA_MAJOR,
                        format!(
                            "`{}` needs `{name}` of CUDA {other}, the stack is for CUDA {major}",
                            item.path
                        ),
                    );
                }
            }
        }
        let built = item.ties.new_abi();
        if let (Some(new), Some(built)) = (promise.cxx11_abi, built)
            && new != built
        {
            let name = |new: bool| if new { "new" } else { "old" };
            report(
                codes::CXX11_ABI,
                format!(
                    "`{}` was built with the {} C++11 ABI, the stack's torch with the {}",
                    item.path,
                    name(built),
                    name(new)
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Question, Target, audit};
    use stackforge_binary::samples::compiled::Built;

    const NEW_ABI: &str = "_ZN3c105checkENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
    const OLD_ABI: &str = "_ZN3c105checkESs";

    /// Returns codes and messages about the object at `path`.
    fn audit_errors(path: &str, built: &Built<'_>, promise: Promise) -> Vec<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        built.write(&dir.path().join(path));
        let answer = audit(&Question {
            catalog: &stackforge_stack::catalog::load(None).unwrap(),
            target: Target::Path(dir.path()),
            gpus: Vec::new(),
            python: None,
            sysroot: None,
            promise,
        });
        let findings = answer.unwrap().findings;
        let errors = findings.into_iter().filter(Finding::is_error);
        errors
            .map(|f| (f.diagnostic.code.to_string(), f.diagnostic.message))
            .collect()
    }

    fn cuda(major: u32) -> Promise {
        Promise {
            cuda: Some(major),
            cxx11_abi: None,
        }
    }

    fn abi(new: bool) -> Promise {
        Promise {
            cuda: None,
            cxx11_abi: Some(new),
        }
    }

    fn error(code: &str, message: &str) -> [(String, String); 1] {
        [(code.to_owned(), message.to_owned())]
    }

    #[test]
    fn the_other_cuda_is_named() {
        let built = Built {
            needs: &["libcudart.so.12", "libc.so.6"],
            ..Built::default()
        };
        let message = "`user/_C.so` needs `libcudart.so.12` of CUDA 12, the stack is for CUDA 13";
        assert_eq!(
            audit_errors("user/_C.so", &built, cuda(13)),
            error("SF0610", message)
        );
        for fits in [cuda(12), Promise::default()] {
            assert_eq!(audit_errors("user/_C.so", &built, fits), []);
        }
    }

    #[test]
    fn the_other_abi_is_named() {
        let asks = |name: &'static [&'static str]| Built {
            asks: name,
            ..Built::default()
        };
        let audit_errors = |built: &Built<'_>, promise| audit_errors("user/_C.so", built, promise);
        let (new, old) = (asks(&[NEW_ABI]), asks(&[OLD_ABI]));
        let start = "`user/_C.so` was built with the";
        let message = format!("{start} old C++11 ABI, the stack's torch with the new");
        assert_eq!(audit_errors(&old, abi(true)), error("SF0605", &message));
        let message = format!("{start} new C++11 ABI, the stack's torch with the old");
        assert_eq!(audit_errors(&new, abi(false)), error("SF0605", &message));
        for (built, fits) in [(&new, abi(true)), (&old, abi(false)), (&old, cuda(13))] {
            assert_eq!(audit_errors(built, fits), []);
        }
        // No string crosses the interface, so either ABI will do.
        let neither = asks(&["_ZN2at3catEv"]);
        for any in [true, false] {
            assert_eq!(audit_errors(&neither, abi(any)), []);
        }
    }

    #[test]
    fn of_an_environment_what_is_there_counts() {
        // Both objects are in one package, which loads the one that fits.
        let built = Built {
            needs: &["libcudart.so.12"],
            ..Built::default()
        };
        let path = "lib/python3.12/site-packages/bitsandbytes/libbitsandbytes_cuda128.so";
        let message = format!("`{path}` needs `libcudart.so.12`, which nothing provides");
        assert_eq!(
            audit_errors(path, &built, cuda(13)),
            error("SF0902", &message)
        );
    }
}
