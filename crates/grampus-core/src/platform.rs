//! What the bits of a worker's results depend on besides its data, and whether workers differ in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name and value of each thing, such as `cpu features` and `avx avx2 fma`.
pub type Platform = BTreeMap<String, String>;

/// Workers of one platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Population {
    /// Their ranks and hosts, for people.
    pub who: String,
    /// What they have in common.
    pub platform: Platform,
}

/// Hosts that a message names; of more it gives the number.
const NAMED: usize = 3;

/// The processor of this machine, as far as libraries choose their kernels by it.
pub fn processor() -> Platform {
    let mut found = Platform::new();
    found.insert("architecture".to_owned(), std::env::consts::ARCH.to_owned());
    found.insert("cpu features".to_owned(), features().join(" "));
    #[cfg(target_arch = "x86_64")]
    found.insert("cpu vendor".to_owned(), vendor());
    found
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    macro_rules! found {
        ($($name:tt)*) => {
            [$(($name, std::is_x86_feature_detected!($name))),*]
        };
    }
    let all = found!(
        "sse4.1" "avx" "f16c" "fma" "avx2" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni"
        "avx512bf16" "avx512fp16" "avxvnni"
    );
    all.into_iter()
        .filter(|(_, has)| *has)
        .map(|(name, _)| name)
        .collect()
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    macro_rules! found {
        ($($name:tt)*) => {
            [$(($name, std::arch::is_aarch64_feature_detected!($name))),*]
        };
    }
    let all = found!("neon" "fp16" "dotprod" "i8mm" "bf16" "sve" "sve2");
    all.into_iter()
        .filter(|(_, has)| *has)
        .map(|(name, _)| name)
        .collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Libraries of one maker choose by the maker of the processor as well.
#[cfg(target_arch = "x86_64")]
fn vendor() -> String {
    let told = std::arch::x86_64::__cpuid(0);
    let words = [told.ebx, told.edx, told.ecx].map(u32::to_le_bytes);
    String::from_utf8_lossy(words.as_flattened()).into_owned()
}

/// The workers by platform: host and platform of each are given in order of rank.
pub fn populations(members: &[(String, Platform)]) -> Vec<Population> {
    let mut distinct: Vec<&Platform> = Vec::new();
    for (_, platform) in members {
        if !distinct.contains(&platform) {
            distinct.push(platform);
        }
    }
    let population = |platform: &Platform| {
        let mut hosts: Vec<(&str, Vec<usize>)> = Vec::new();
        for (rank, (host, _)) in members.iter().enumerate().filter(|(_, (_, own))| own == platform) {
            match hosts.iter_mut().find(|(name, _)| name == host) {
                Some((_, ranks)) => ranks.push(rank),
                None => hosts.push((host, vec![rank])),
            }
        }
        Population {
            who: named(&hosts),
            platform: platform.clone(),
        }
    };
    distinct.into_iter().map(population).collect()
}

fn named(hosts: &[(&str, Vec<usize>)]) -> String {
    let one = |(host, ranks): &(&str, Vec<usize>)| match ranks[..] {
        [rank] => format!("rank {rank} on {host}"),
        _ => format!("ranks {} on {host}", ranges(ranks)),
    };
    let mut parts: Vec<String> = hosts.iter().take(NAMED).map(one).collect();
    if hosts.len() > NAMED {
        parts.push(format!("{} more hosts", hosts.len() - NAMED));
    }
    parts.join(" and ")
}

/// Numbers that ascend, as people write them: `0-3, 7`.
fn ranges(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let shown = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// All platforms that a run was on: those that it `knows` from before, and those of its workers now. Says in which ways they
/// differ, if they do; of a run that `goes_on` after it lost a worker, only where a platform is new. What one side does not know is
/// not compared, such as what an older version did not save: give a value to what is not set, too.
pub fn compare(
    known: Vec<Population>,
    members: &[(String, Platform)],
    goes_on: bool,
) -> (Vec<Population>, Option<String>) {
    let before = known.len();
    let mut all = known;
    for population in populations(members) {
        if !all.iter().any(|other| other.platform == population.platform) {
            all.push(population);
        }
    }
    if goes_on && all.len() == before {
        return (all, None);
    }
    let who = |place: usize| match place < before {
        true => format!("{} before", all[place].who),
        false => all[place].who.clone(),
    };
    let names: BTreeMap<&String, ()> = all
        .iter()
        .flat_map(|each| each.platform.keys())
        .map(|name| (name, ()))
        .collect();
    let mut ways = Vec::new();
    for name in names.into_keys() {
        let mut values: Vec<(&String, Vec<String>)> = Vec::new();
        for (place, each) in all.iter().enumerate() {
            let Some(value) = each.platform.get(name) else {
                continue;
            };
            match values.iter_mut().find(|(other, _)| *other == value) {
                Some((_, holders)) => holders.push(who(place)),
                None => values.push((value, vec![who(place)])),
            }
        }
        if values.len() > 1 {
            let values = values
                .iter()
                .map(|(value, holders)| format!("{value:?} ({})", holders.join(" and ")));
            ways.push(format!("{name}: {}", values.collect::<Vec<_>>().join(", ")));
        }
    }
    let why = (!ways.is_empty()).then(|| {
        format!(
            "equal bits are not promised for this run, since its workers differ in what bits depend on; {}; use hosts with \
             the same processors and libraries, or limit all to what they have in common, as ATEN_CPU_CAPABILITY and MKL_CBWR do",
            ways.join("; ")
        )
    });
    (all, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(pairs: &[(&str, &str)]) -> Platform {
        let owned = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    fn members(values: &[(&str, &[(&str, &str)])]) -> Vec<(String, Platform)> {
        let owned = values
            .iter()
            .map(|(host, pairs)| ((*host).to_owned(), platform(pairs)));
        owned.collect()
    }

    #[test]
    fn equal_workers_are_one_population() {
        let same: &[(&str, &str)] = &[("cpu features", "avx2"), ("torch", "2.7.1")];
        let (all, why) = compare(
            Vec::new(),
            &members(&[("a", same), ("a", same), ("b", same)]),
            false,
        );
        assert_eq!(why, None);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].who, "ranks 0-1 on a and rank 2 on b");
    }

    #[test]
    fn a_difference_names_hosts_ranks_and_both_values() {
        let (narrow, wide): (&[_], &[_]) = (
            &[("cpu features", "avx2"), ("torch", "2.7.1")],
            &[("cpu features", "avx512f"), ("torch", "2.7.1")],
        );
        let mixed = members(&[("a", narrow), ("a", wide), ("b", narrow), ("b", wide)]);
        let (all, why) = compare(Vec::new(), &mixed, false);
        let why = why.unwrap();
        assert!(why.contains(r#"cpu features: "avx2" (rank 0 on a and rank 2 on b), "avx512f" (rank 1 on a and rank 3 on b)"#), "{why}");
        assert!(!why.contains("torch: "), "{why}");
        assert_eq!(all.len(), 2);
        // The run was told once; it is told again only of what is new.
        assert_eq!(compare(all.clone(), &mixed, true), (all.clone(), None));
        let newer = members(&[("c", &[("cpu features", "avx2"), ("torch", "2.8.0")])]);
        let (grown, why) = compare(all, &newer, true);
        assert_eq!(grown.len(), 3);
        assert!(why.unwrap().contains(r#"torch: "2.7.1" (rank 0 on a and rank 2 on b before and rank 1 on a and rank 3 on b before), "2.8.0" (rank 0 on c)"#));
    }

    #[test]
    fn what_one_side_does_not_know_is_not_compared() {
        let known = populations(&members(&[("a", &[("cpu features", "avx2")])]));
        let here = members(&[("a", &[("cpu features", "avx2"), ("numpy", "2.3.0")])]);
        assert_eq!(compare(known, &here, false).1, None);
    }

    #[test]
    fn this_machine_has_a_processor() {
        let found = processor();
        assert_eq!(found["architecture"], std::env::consts::ARCH);
        assert_eq!(found, processor());
    }

    #[test]
    fn many_hosts_are_counted() {
        let hosts: Vec<(&str, Vec<usize>)> = ["a", "b", "c", "d", "e"]
            .iter()
            .zip(0..)
            .map(|(host, rank)| (*host, vec![rank]))
            .collect();
        assert!(named(&hosts).ends_with("rank 2 on c and 2 more hosts"));
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    }
}
