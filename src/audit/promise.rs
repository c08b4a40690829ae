//! What a stack promises of everything in it, against objects that hold something else.
//!
//! In: [`Promise`]. Out: findings, also where what an object needs is not in the tree: of a wheel
//! that was just compiled, say.

use super::closure::World;
use super::finding::Finding;
use super::missing::Cuda;
use crate::diag::{Diagnostic, codes};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promise {
    /// Major release of CUDA.
    pub cuda: Option<u32>,
    /// Whether torch was built with the new C++11 ABI.
    pub cxx11_abi: Option<bool>,
}

pub fn check(world: &World<'_>, promise: &Promise, findings: &mut Vec<Finding>) {
    let cuda = Cuda::of(world);
    for item in world.items {
        let mut tell = |code, message| {
            findings.push(Finding::new(&item.path, Diagnostic::error(code, message)));
        };
        if let Some(major) = promise.cuda {
            for name in &item.object.needed {
                let other = cuda.major(name).filter(|other| *other != major);
                if let Some(other) = other {
                    tell(
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
            tell(
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
