//! Decides which GPUs run which device code.
//!
//! In: SMs of SASS and PTX, and a device's compute capability. Out: [`Coverage`]. The rules are those of the
//! CUDA programming guide's binary compatibility, with Tegra's exceptions as torch 2.15 has them
//! (`DEVICE_REQUIREMENT` in torch/cuda/__init__.py).

use stackforge_types::{Sm, Suffix};

/// How a device runs some code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// SASS for this SM, or for one of its family.
    Native(Sm),
    /// The driver compiles this PTX.
    Jit(Sm),
    /// No code runs: `no kernel image is available for execution on the device`.
    None,
}

/// Integrated GPUs of Tegra modules. They run only their own code, and no other GPU runs that.
const TEGRA: [(u8, u8); 6] = [(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)];

/// Whether CUDA 13.2's alignment applies, from which Orin and Xavier run server code.
pub fn aligned(cuda: (u32, u32)) -> bool {
    cuda >= (13, 2)
}

/// Whether an SM is an integrated GPU of a Tegra module, such as Jetson's and IGX's.
pub fn is_tegra(sm: Sm) -> bool {
    TEGRA.contains(&(sm.major, sm.minor))
}

/// Whether two SMs are the same GPU: CUDA 12 called Thor 10.1.
pub fn same(a: Sm, b: Sm) -> bool {
    let thor = |s: Sm| matches!((s.major, s.minor), (10, 1) | (11, 0));
    (a.major, a.minor) == (b.major, b.minor) || (thor(a) && thor(b))
}

/// Whether SASS for `code` runs on a device.
pub fn sass_runs(code: Sm, device: Sm, aligned: bool) -> bool {
    match code.suffix {
        Some(Suffix::Arch) => (code.major, code.minor) == (device.major, device.minor),
        _ if same(code, device) => true,
        _ if is_tegra(code) => false,
        _ if is_tegra(device)
            && !(aligned && matches!((device.major, device.minor), (8, 7) | (7, 2))) =>
        {
            false
        }
        _ => code.major == device.major && code.minor <= device.minor,
    }
}

/// Whether a driver that knows the PTX version can compile PTX of `code` for a device.
pub fn ptx_runs(code: Sm, device: Sm) -> bool {
    match code.suffix {
        Some(Suffix::Arch) => same(code, device),
        Some(Suffix::Family) => code.major == device.major && code.minor <= device.minor,
        None => (code.major, code.minor) <= (device.major, device.minor),
    }
}

/// Returns the best way in which the device runs the code.
pub fn coverage(sass: &[Sm], ptx: &[Sm], device: Sm, aligned: bool) -> Coverage {
    let newest =
        |sms: &[Sm], runs: &dyn Fn(Sm) -> bool| sms.iter().copied().filter(|s| runs(*s)).max();
    if let Some(sm) = newest(sass, &|s| sass_runs(s, device, aligned)) {
        Coverage::Native(sm)
    } else if let Some(sm) = newest(ptx, &|s| ptx_runs(s, device)) {
        Coverage::Jit(sm)
    } else {
        Coverage::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sm(s: &str) -> Sm {
        s.parse().unwrap()
    }

    fn sms(s: &str) -> Vec<Sm> {
        s.split(' ').filter(|s| !s.is_empty()).map(sm).collect()
    }

    #[test]
    fn sass_runs_within_its_major_from_its_minor_on() {
        for (code, device, runs) in [
            ("8.0", "8.6", true),
            ("8.6", "8.0", false),
            ("8.9", "9.0", false),
            ("9.0", "9.0", true),
            ("10.0", "10.3", true),
            ("10.0", "11.0", false),
            ("12.0", "12.1", true),
            // Tegra
            ("8.0", "8.7", false),
            ("8.7", "8.7", true),
            ("8.7", "8.9", false),
            ("10.0", "10.1", false),
            ("10.1", "11.0", true),
            ("11.0", "10.1", true),
            ("5.2", "5.3", false),
            ("7.0", "7.2", false),
            ("7.2", "7.5", false),
            // suffixes
            ("9.0a", "9.0", true),
            ("11.0a", "10.1", false),
            ("10.0a", "10.3", false),
            ("10.0f", "10.3", true),
            ("10.0f", "11.0", false),
            ("10.3f", "10.0", false),
            ("12.0f", "12.1", true),
        ] {
            assert_eq!(
                sass_runs(sm(code), sm(device), false),
                runs,
                "{code} on {device}"
            );
        }
    }

    #[test]
    fn orin_runs_server_code_from_cuda_13_2_on() {
        assert!(aligned((13, 2)) && !aligned((13, 0)));
        assert!(sass_runs(sm("8.0"), sm("8.7"), true));
        assert!(!sass_runs(sm("8.7"), sm("8.9"), true));
        assert!(!sass_runs(sm("10.0"), sm("10.1"), true));
    }

    #[test]
    fn ptx_is_forward_compatible_unless_it_has_a_suffix() {
        assert!(ptx_runs(sm("8.0"), sm("12.1")));
        assert!(!ptx_runs(sm("9.0"), sm("8.9")));
        assert!(!ptx_runs(sm("9.0a"), sm("10.0")));
        assert!(ptx_runs(sm("10.0f"), sm("10.3")));
        assert!(!ptx_runs(sm("10.0f"), sm("12.0")));
    }

    #[test]
    fn native_code_wins_over_ptx() {
        let code = (sms("7.5 8.0 9.0"), sms("9.0"));
        let of = |device| coverage(&code.0, &code.1, sm(device), false);
        assert_eq!(of("8.9"), Coverage::Native(sm("8.0")));
        assert_eq!(of("12.0"), Coverage::Jit(sm("9.0")));
        assert_eq!(of("7.0"), Coverage::None);
    }
}
