//! GPUs, by the devices that their drivers make.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access};

use super::check::Check;

/// What is there, and whether it can be used.
#[derive(Clone, Debug, Default)]
pub(super) struct Gpu {
    /// Devices that this user may use, and those that he may not.
    nvidia: usize,
    closed: usize,
    /// Version of NVIDIA's driver, which is there without devices in a container that was given none.
    driver: Option<String>,
    /// Devices of AMD's driver.
    amd: usize,
    /// CUDA_VISIBLE_DEVICES.
    visible: Option<String>,
}

impl Gpu {
    pub(super) fn read() -> Self {
        let devices = nvidia_devices();
        let open =
            |name: &String| access(Path::new("/dev").join(name), Access::READ_OK | Access::WRITE_OK).is_ok();
        let nvidia = devices.iter().filter(|name| open(name)).count();
        let driver = fs::read_to_string("/proc/driver/nvidia/version").ok();
        Self {
            nvidia,
            closed: devices.len() - nvidia,
            driver: driver.as_deref().and_then(driver_version),
            amd: if Path::new("/dev/kfd").exists() {
                amd_devices()
            } else {
                0
            },
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        }
    }
}

fn nvidia_devices() -> Vec<String> {
    let names = fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // Beside nvidia0, nvidia1 there are nvidiactl, nvidia-uvm and others.
    let numbered = |name: &String| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
    };
    names.filter(numbered).collect()
}

/// Nodes of the driver are GPUs where they have SIMD units, and processors where not.
fn amd_devices() -> usize {
    let nodes = fs::read_dir("/sys/class/kfd/kfd/topology/nodes")
        .into_iter()
        .flatten()
        .flatten();
    let has_units = |text: String| {
        let count = text.lines().find_map(|line| line.strip_prefix("simd_count "));
        count.is_some_and(|count| count.trim() != "0")
    };
    nodes
        .filter(|node| fs::read_to_string(node.path().join("properties")).is_ok_and(has_units))
        .count()
}

/// The first word of the line that is a number with points.
fn driver_version(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
    text.lines()
        .next()?
        .split_whitespace()
        .find(is_version)
        .map(str::to_owned)
}

pub(super) fn gpu(facts: &Gpu, torch: Option<&str>) -> Check {
    const NAME: &str = "GPU";
    let driver = facts
        .driver
        .as_ref()
        .map(|version| format!(", driver {version}"))
        .unwrap_or_default();
    let found = match (facts.nvidia, facts.amd) {
        (0, 0) => String::new(),
        (0, amd) => format!("{amd} of AMD"),
        (nvidia, _) => format!("{nvidia} of NVIDIA{driver}"),
    };
    if facts.nvidia == 0 && facts.closed > 0 {
        let found = format!("{} of NVIDIA, which this user may not use", facts.closed);
        return Check::warn(
            NAME,
            found,
            "ask for the rights to /dev/nvidia*, often the group `video` or `render`",
        );
    }
    if found.is_empty() {
        return match &facts.driver {
            Some(_) => Check::warn(
                NAME,
                format!("none here{driver}"),
                "give the container its devices: `--gpus all`",
            ),
            None => Check::note(NAME, "none, models run on the cores"),
        };
    }
    if facts.nvidia > 0
        && facts
            .visible
            .as_deref()
            .is_some_and(|list| list.is_empty() || list == "-1")
    {
        let found = format!("{found}, hidden by CUDA_VISIBLE_DEVICES");
        return Check::warn(NAME, found, "unset CUDA_VISIBLE_DEVICES to use them");
    }
    match torch {
        Some(version) if version.ends_with("+cpu") => Check::warn(
            NAME,
            format!("{found}, which torch {version} cannot use"),
            "install the torch that is built for them, see pytorch.org",
        ),
        _ => Check::ok(NAME, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Level::{Note, Ok as Fine, Warn};
    use super::*;

    fn two() -> Gpu {
        Gpu {
            nvidia: 2,
            driver: Some("570.86".into()),
            ..Gpu::default()
        }
    }

    #[test]
    fn devices_are_counted() {
        assert_eq!(gpu(&two(), Some("2.9.1")).found, "2 of NVIDIA, driver 570.86");
        assert_eq!(gpu(&two(), None).level, Fine);
        let amd = Gpu {
            amd: 1,
            ..Gpu::default()
        };
        assert_eq!(gpu(&amd, None).found, "1 of AMD");
        assert_eq!(gpu(&Gpu::default(), None).level, Note);
    }

    #[test]
    fn devices_that_cannot_be_used_are_a_warning() {
        let given_none = Gpu { nvidia: 0, ..two() };
        assert!(gpu(&given_none, None).advice.contains("--gpus all"));
        let closed = Gpu {
            nvidia: 0,
            closed: 2,
            ..two()
        };
        assert!(
            gpu(&closed, None)
                .found
                .contains("2 of NVIDIA, which this user may not use")
        );
        let hidden = Gpu {
            visible: Some("-1".into()),
            ..two()
        };
        assert!(gpu(&hidden, None).found.contains("hidden"));
        let some = Gpu {
            visible: Some("1".into()),
            ..two()
        };
        assert_eq!(gpu(&some, None).level, Fine);
        assert_eq!(gpu(&two(), Some("2.9.1+cpu")).level, Warn);
    }

    #[test]
    fn the_driver_says_its_version() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Fri Jan 1 00:00:00 UTC 2025\nGCC 12\n";
        assert_eq!(driver_version(text), Some("570.86.15".into()));
        assert_eq!(driver_version(""), None);
    }
}
