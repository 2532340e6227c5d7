//! Python, the packages in it, and Java for one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::check::Check;
use super::command::{Ran, run};

const WITHIN: Duration = Duration::from_secs(10);
const OLDEST: [u64; 2] = [3, 10];
const FRAMEWORKS: [&str; 4] = ["torch", "tensorflow", "keras", "mxnet"];
const ENGINES: [&str; 4] = ["onnxruntime", "openvino", "pyspark", "ray"];
const LIBRARIES: [&str; 3] = ["cloudpickle", "numpy", "pyarrow"];

/// The Python that runs scripts.
#[derive(Clone, Debug)]
pub(super) enum Python {
    /// There is none of that name.
    Missing(String),
    /// It did not answer.
    Broken {
        name: String,
        why: String,
    },
    Found(Interpreter),
}

/// What it said about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Interpreter {
    path: String,
    version: Vec<u64>,
    wheel: Wheel,
    /// Those that it can import, with their versions.
    packages: BTreeMap<String, String>,
}

/// The Grampus in it.
#[derive(Clone, Debug, Default)]
pub(super) enum Wheel {
    #[default]
    Missing,
    /// It is there and cannot be imported.
    Broken(String),
    Version(String),
}

/// Java, which only Spark needs.
#[derive(Clone, Debug)]
pub(super) enum Java {
    Missing,
    Broken(String),
    /// The first line that it says of itself.
    Version(String),
}

impl Python {
    pub(super) fn read(given: Option<String>) -> Self {
        let name = given.unwrap_or_else(|| "python3".to_owned());
        let mut arguments = vec!["-c", include_str!("probe.py")];
        arguments.extend(FRAMEWORKS.iter().chain(&ENGINES).chain(&LIBRARIES));
        match run(&name, &arguments, WITHIN) {
            Ran::Missing => Python::Missing(name),
            Ran::Failed(why) => Python::Broken { name, why },
            Ran::Wrote(text) => match parse(&text) {
                Some(found) => Python::Found(found),
                None => {
                    let why = "it is no Python, or does not run code".to_owned();
                    Python::Broken { name, why }
                }
            },
        }
    }

    /// The version of a package that can be imported.
    pub(super) fn version_of(&self, package: &str) -> Option<&str> {
        match self {
            Python::Found(python) => python.packages.get(package).map(String::as_str),
            _ => None,
        }
    }

    fn is_usable(&self) -> bool {
        matches!(self, Python::Found(python) if is_new_enough(python))
    }
}

impl Java {
    pub(super) fn read() -> Self {
        match run("java", &["-version"], WITHIN) {
            Ran::Missing => Java::Missing,
            Ran::Failed(why) => Java::Broken(why),
            Ran::Wrote(text) => Java::Version(text.lines().next().unwrap_or_default().to_owned()),
        }
    }
}

fn is_new_enough(python: &Interpreter) -> bool {
    python.version.as_slice() >= OLDEST.as_slice()
}

/// Start-up files of Python may print too: the answer is the last line that can be one.
fn parse(text: &str) -> Option<Interpreter> {
    let line = text.lines().rev().find(|line| line.starts_with('{'))?;
    let facts: Value = serde_json::from_str(line).ok()?;
    let word = |name: &str| facts[name].as_str().map(str::to_owned);
    let packages = facts["packages"].as_object();
    Some(Interpreter {
        path: word("path")?,
        version: facts["version"]
            .as_array()?
            .iter()
            .filter_map(Value::as_u64)
            .collect(),
        wheel: match (word("grampus"), word("broken")) {
            (Some(version), _) => Wheel::Version(version),
            (None, Some(why)) => Wheel::Broken(why),
            (None, None) => Wheel::Missing,
        },
        packages: packages
            .into_iter()
            .flatten()
            .filter_map(|(name, version)| Some((name.clone(), version.as_str()?.to_owned())))
            .collect(),
    })
}

pub(super) fn interpreter(python: &Python) -> Check {
    const NAME: &str = "Python";
    const ADVICE: &str =
        "put Python 3.10 or newer as `python3` into PATH, or use the `grampus` of its environment";
    match python {
        Python::Missing(name) => Check::warn(
            NAME,
            format!("there is no {name}: only other programs can run"),
            ADVICE,
        ),
        Python::Broken { name, why } => Check::fail(NAME, format!("{name} does not work: {why}"), ADVICE),
        Python::Found(python) => {
            let version: Vec<String> = python.version.iter().map(u64::to_string).collect();
            let found = format!("{} at {}", version.join("."), python.path);
            if is_new_enough(python) {
                Check::ok(NAME, found)
            } else {
                Check::fail(NAME, found, ADVICE)
            }
        }
    }
}

pub(super) fn wheel(python: &Python, own: &str) -> Check {
    const NAME: &str = "grampus";
    let install = |python: &Interpreter| format!("run `{} -m pip install grampus=={own}`", python.path);
    match python {
        Python::Found(python) if is_new_enough(python) => match &python.wheel {
            Wheel::Version(version) if version == own => {
                Check::ok(NAME, format!("{own}, here and in this Python"))
            }
            Wheel::Version(version) => Check::fail(
                NAME,
                format!("this is {own}, this Python has {version}"),
                install(python),
            ),
            Wheel::Missing => Check::warn(
                NAME,
                format!("this is {own}, this Python has none"),
                install(python),
            ),
            Wheel::Broken(why) => Check::fail(
                NAME,
                format!("this Python cannot import it: {why}"),
                install(python),
            ),
        },
        _ => Check::note(NAME, format!("this is {own}")),
    }
}

pub(super) fn frameworks(python: &Python) -> Check {
    packages("frameworks", python, &FRAMEWORKS)
}

pub(super) fn engines(python: &Python) -> Check {
    packages("engines", python, &ENGINES)
}

pub(super) fn libraries(python: &Python) -> Check {
    const NAME: &str = "libraries";
    let check = packages(NAME, python, &LIBRARIES);
    if python.is_usable() && python.version_of("cloudpickle").is_none() {
        return Check::fail(
            NAME,
            check.found,
            "install cloudpickle, which sends functions to workers",
        );
    }
    check
}

/// None of them is a must: a job needs those that its script imports.
fn packages(name: &'static str, python: &Python, wanted: &[&str]) -> Check {
    if !python.is_usable() {
        return Check::note(name, "not looked for, without a Python");
    }
    let (here, missing): (Vec<&str>, Vec<&str>) = wanted
        .iter()
        .partition(|package| python.version_of(package).is_some());
    let here: Vec<String> = here
        .iter()
        .map(|package| format!("{package} {}", python.version_of(package).unwrap_or_default()))
        .collect();
    match (here.is_empty(), missing.is_empty()) {
        (_, true) => Check::ok(name, here.join(", ")),
        (false, _) => Check::ok(
            name,
            format!("{}; not here: {}", here.join(", "), missing.join(", ")),
        ),
        (true, _) => Check::note(name, format!("none of {}", missing.join(", "))),
    }
}

pub(super) fn java(java: &Java, spark: bool) -> Check {
    const NAME: &str = "Java";
    const ADVICE: &str = "install Java 17 for pyspark, and set JAVA_HOME where it is not in PATH";
    match (java, spark) {
        (Java::Version(version), _) => Check::ok(NAME, version.as_str()),
        (Java::Missing, true) => Check::warn(NAME, "there is none, and pyspark cannot start without", ADVICE),
        (Java::Missing, false) => Check::note(NAME, "there is none, and only Spark needs it"),
        (Java::Broken(why), true) => Check::warn(NAME, format!("it does not work: {why}"), ADVICE),
        (Java::Broken(why), false) => {
            Check::note(NAME, format!("it does not work, and only Spark needs it: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Level::{Fail, Note, Ok as Fine, Warn};
    use super::*;

    fn python(version: &[u64], wheel: Wheel, packages: &[(&str, &str)]) -> Python {
        let packages = packages
            .iter()
            .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()));
        Python::Found(Interpreter {
            path: "/usr/bin/python3".into(),
            version: version.to_vec(),
            wheel,
            packages: packages.collect(),
        })
    }

    fn missing() -> Python {
        Python::Missing("python3".into())
    }

    #[test]
    fn a_python_must_be_new_enough() {
        let seen = |version| interpreter(&python(version, Wheel::Missing, &[]));
        assert_eq!(seen(&[3, 11, 7]).found, "3.11.7 at /usr/bin/python3");
        assert_eq!((seen(&[3, 10, 0]).level, seen(&[3, 9, 18]).level), (Fine, Fail));
        assert_eq!(interpreter(&missing()).level, Warn);
        let broken = Python::Broken {
            name: "python3".into(),
            why: "no answer within 10 s".into(),
        };
        assert_eq!(interpreter(&broken).level, Fail);
    }

    #[test]
    fn the_wheel_must_be_of_this_version() {
        let seen = |found| wheel(&python(&[3, 11, 7], found, &[]), "1.2.3");
        assert_eq!(seen(Wheel::Version("1.2.3".into())).level, Fine);
        let other = seen(Wheel::Version("1.0.0".into()));
        assert!(
            other.level == Fail && other.found.contains("1.0.0") && other.advice.contains("grampus==1.2.3")
        );
        assert_eq!(seen(Wheel::Missing).level, Warn);
        assert_eq!(seen(Wheel::Broken("ImportError: glibc".into())).level, Fail);
        assert_eq!(wheel(&missing(), "1.2.3").level, Note);
        assert_eq!(
            wheel(&python(&[3, 8, 0], Wheel::Missing, &[]), "1.2.3").level,
            Note
        );
    }

    #[test]
    fn packages_are_named_with_their_versions() {
        let some = python(
            &[3, 11, 7],
            Wheel::Missing,
            &[("torch", "2.9.1"), ("cloudpickle", "3.1")],
        );
        assert_eq!(
            frameworks(&some).found,
            "torch 2.9.1; not here: tensorflow, keras, mxnet"
        );
        assert_eq!((frameworks(&some).level, engines(&some).level), (Fine, Note));
        assert_eq!(libraries(&some).level, Fine);
        assert_eq!(libraries(&python(&[3, 11, 7], Wheel::Missing, &[])).level, Fail);
        assert_eq!(
            (libraries(&missing()).level, frameworks(&missing()).level),
            (Note, Note)
        );
    }

    #[test]
    fn java_matters_to_spark_only() {
        assert_eq!(
            java(&Java::Version("openjdk version \"17\"".into()), true).level,
            Fine
        );
        assert_eq!(
            (
                java(&Java::Missing, true).level,
                java(&Java::Missing, false).level
            ),
            (Warn, Note)
        );
        let broken = Java::Broken("x".into());
        assert_eq!(
            (java(&broken, true).level, java(&broken, false).level),
            (Warn, Note)
        );
    }

    #[test]
    fn the_answer_is_found_among_other_output() {
        let text = "hello from a start-up file\n{\"path\": \"/p\", \"version\": [3, 12, 1], \"grampus\": \"0.1.0\", \
                    \"packages\": {\"torch\": \"2.9.1\", \"ray\": null}}\nbye\n";
        let seen = parse(text).unwrap();
        assert_eq!(
            (seen.path.as_str(), seen.version.as_slice()),
            ("/p", [3, 12, 1].as_slice())
        );
        assert!(matches!(seen.wheel, Wheel::Version(version) if version == "0.1.0"));
        assert_eq!(seen.packages.keys().collect::<Vec<_>>(), ["torch"]);
        assert!(parse("").is_none() && parse("{}").is_none());
    }
}
