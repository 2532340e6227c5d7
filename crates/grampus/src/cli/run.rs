//! `grampus run`: N ranks of a script, a module or any program, with torchrun's flags and variables.
//!
//! Every node runs this command. Node 0 holds the coordinator; every node, node 0 too, is one of its
//! members and carries `--nproc-per-node` ranks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use grampus_cluster::node::{self, Endpoint, Job, NodePlan, Restarts};
use grampus_cluster::supervisor::Program;
use grampus_cluster::{host, keyfile};

use super::{fail, say};

/// Exit codes: that of the first rank that failed (128 + signal where a signal ended it), 130 after
/// Ctrl-C, 1 where the job could not run, 2 for wrong arguments.
#[derive(Args)]
pub(super) struct RunArguments {
    /// Ranks on this node: a number, `auto` or `cpu` (one per core), or `gpu` (one per GPU)
    #[arg(
        short = 'n',
        allow_negative_numbers = true,
        long,
        default_value = "1",
        env = "PET_NPROC_PER_NODE",
        value_name = "N"
    )]
    nproc_per_node: String,
    /// Number of nodes
    #[arg(long, default_value = "1", env = "PET_NNODES", value_name = "N")]
    nnodes: String,
    /// Place of this node, from 0; node 0 is the one that the others connect to
    #[arg(long, env = "PET_NODE_RANK", value_name = "K")]
    node_rank: Option<u32>,
    /// `host[:port]` of node 0, the same on every node
    #[arg(long, env = "PET_RDZV_ENDPOINT", value_name = "HOST:PORT")]
    rdzv_endpoint: Option<String>,
    /// Name of the job, the same on every node
    #[arg(long, env = "PET_RDZV_ID", default_value = "none", value_name = "NAME")]
    rdzv_id: String,
    /// Accepted for scripts written for torchrun; there is one way to meet
    #[arg(long, env = "PET_RDZV_BACKEND", hide = true)]
    rdzv_backend: Option<String>,
    /// Accepted for scripts written for torchrun
    #[arg(long, env = "PET_RDZV_CONF", hide = true)]
    rdzv_conf: Option<String>,
    /// Host of node 0, where `--rdzv-endpoint` is not given
    #[arg(long, env = "PET_MASTER_ADDR", value_name = "HOST")]
    master_addr: Option<String>,
    /// Port of node 0, where `--rdzv-endpoint` is not given
    #[arg(long, env = "PET_MASTER_PORT", value_name = "PORT")]
    master_port: Option<u16>,
    /// One node only (the default)
    #[arg(long)]
    standalone: bool,
    /// A file with the key that all nodes share; made where it is missing. Copy it to the other nodes, or
    /// keep it in a home that they share
    #[arg(long, env = "GRAMPUS_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How often all ranks are started again after one failed
    #[arg(long, default_value_t = 0, env = "PET_MAX_RESTARTS", value_name = "N")]
    max_restarts: u32,
    /// Accepted for scripts written for torchrun; ends of ranks are events here
    #[arg(long, env = "PET_MONITOR_INTERVAL", hide = true)]
    monitor_interval: Option<f64>,
    /// A folder for one file of output per rank
    #[arg(long, env = "PET_LOG_DIR", value_name = "FOLDER")]
    log_dir: Option<PathBuf>,
    /// Streams that go to the console and the log file: 1 is output, 2 errors, 3 both (the default)
    #[arg(short = 't', long, env = "PET_TEE", value_name = "0-3")]
    tee: Option<u8>,
    /// Streams that go to the log file only: 1 is output, 2 errors, 3 both
    #[arg(short = 'r', long, env = "PET_REDIRECTS", value_name = "0-3")]
    redirects: Option<u8>,
    /// Threads per rank; by default OMP_NUM_THREADS, or the cores divided by the ranks
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Seconds within which all nodes must have come
    #[arg(long, default_value_t = 300.0, value_name = "SECONDS")]
    start_timeout: f64,
    /// Seconds after which a node that gives no sign of life is given up
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    heartbeat_timeout: f64,
    /// The program is the name of a Python module
    #[arg(short = 'm', long)]
    module: bool,
    /// The program is not a Python script, whatever its name
    #[arg(long)]
    no_python: bool,
    /// Script, module or program
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// torchrun takes `--nproc_per_node` as well: underscores in flags before the program become dashes.
pub(super) fn with_dashes(arguments: Vec<String>) -> Vec<String> {
    let mut flags = arguments.get(1).is_some_and(|command| command == "run");
    let mut value_follows = false;
    let change = |argument: String| {
        if !flags || value_follows {
            value_follows = false;
            return argument;
        }
        let Some(flag) = argument.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
            // A short flag may have a value; the program itself ends the flags.
            flags = argument.starts_with('-') || argument == "run" || argument == "grampus";
            value_follows = matches!(argument.as_str(), "-n" | "-t" | "-r");
            return argument;
        };
        let (name, value) = flag
            .split_once('=')
            .map_or((flag, None), |(name, value)| (name, Some(value)));
        let name = name.replace('_', "-");
        value_follows =
            value.is_none() && !matches!(name.as_str(), "standalone" | "module" | "no-python" | "help");
        value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))
    };
    let first = arguments.first().cloned();
    first
        .into_iter()
        .chain(arguments.into_iter().skip(1).map(change))
        .collect()
}

/// Runs it; returns the exit code.
pub(super) fn main(arguments: RunArguments, python: Option<String>) -> i32 {
    match plan(&arguments, python) {
        Ok(plan) => match node::run(plan) {
            Ok(end) => {
                if let Some(why) = &end.why {
                    say(why);
                }
                end.code
            }
            Err(error) => fail(&error.to_string()),
        },
        Err(why) => {
            say(&why);
            2
        }
    }
}

fn plan(arguments: &RunArguments, python: Option<String>) -> Result<NodePlan, String> {
    let ranks = ranks(&arguments.nproc_per_node)?;
    let nodes = nodes(&arguments.nnodes)?;
    let shown = shown(arguments)?;
    let threads = match (
        arguments.threads,
        std::env::var("OMP_NUM_THREADS")
            .ok()
            .and_then(|text| text.parse().ok()),
    ) {
        (Some(threads), _) | (None, Some(threads)) => threads,
        (None, None) => host::threads_per_worker(host::cores(), ranks),
    };
    let job = if nodes == 1 {
        Job::Alone
    } else {
        several(arguments, nodes)?
    };
    let supervisor = match &python {
        Some(python) => vec![
            python.clone(),
            "-c".to_owned(),
            "from grampus._native import supervise; supervise()".to_owned(),
        ],
        None => vec![own_path()?, "supervise".to_owned()],
    };
    Ok(NodePlan {
        job,
        ranks,
        program: program(arguments, python, threads)?,
        supervisor,
        log_dir: arguments.log_dir.clone(),
        shown,
        restarts: Restarts(arguments.max_restarts),
        join_within: seconds(arguments.start_timeout, "--start-timeout")?,
        silent_after: seconds(arguments.heartbeat_timeout, "--heartbeat-timeout")?,
    })
}

fn own_path() -> Result<String, String> {
    let path = std::env::current_exe().map_err(|error| format!("cannot find this very program: {error}"))?;
    path.into_os_string()
        .into_string()
        .map_err(|_| "the path of this program is not valid text".to_owned())
}

fn ranks(text: &str) -> Result<u32, String> {
    match text {
        "auto" | "cpu" => Ok(host::cores()),
        "gpu" => match gpus() {
            0 => Err("--nproc-per-node gpu: this machine has no GPU that can be used".to_owned()),
            count => Ok(count),
        },
        text => match text.parse() {
            Ok(0) => Err("--nproc-per-node must be at least 1".to_owned()),
            Ok(count) => Ok(count),
            Err(_) => Err(format!(
                "--nproc-per-node must be a number, `auto`, `cpu` or `gpu`, it is `{text}`"
            )),
        },
    }
}

/// GPUs that the driver of the vendor has made devices for.
fn gpus() -> u32 {
    (0..64)
        .filter(|number| Path::new(&format!("/dev/nvidia{number}")).exists())
        .count() as u32
}

fn nodes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("--nnodes must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) if text.contains(':') => Err(format!(
            "--nnodes {text}: a range of nodes is not supported, give one number"
        )),
        Err(_) => Err(format!("--nnodes must be a number, it is `{text}`")),
    }
}

/// Which streams reach the console.
fn shown(arguments: &RunArguments) -> Result<(bool, bool), String> {
    for (flag, value) in [("--tee", arguments.tee), ("--redirects", arguments.redirects)] {
        if value.is_some_and(|value| value > 3) {
            return Err(format!("{flag} must be 0, 1, 2 or 3"));
        }
    }
    let hidden = arguments.redirects.unwrap_or(0) & !arguments.tee.unwrap_or(0);
    if hidden != 0 && arguments.log_dir.is_none() {
        return Err("--redirects needs --log-dir, or the output would be lost".to_owned());
    }
    Ok((hidden & 1 == 0, hidden & 2 == 0))
}

fn several(arguments: &RunArguments, nodes: u32) -> Result<Job, String> {
    if arguments.standalone {
        return Err("--standalone means one node, and --nnodes asks for more".to_owned());
    }
    let given = arguments.rdzv_endpoint.clone().or_else(|| {
        let port = arguments
            .master_port
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        arguments
            .master_addr
            .as_ref()
            .map(|address| format!("{address}{port}"))
    });
    let text = given.ok_or("--nnodes needs --rdzv-endpoint HOST:PORT, where HOST is node 0")?;
    let endpoint = endpoint(&text)?;
    if arguments.node_rank.is_some_and(|rank| rank >= nodes) {
        return Err(format!(
            "--node-rank must be below --nnodes ({nodes}), nodes are counted from 0"
        ));
    }
    let path = arguments.key_file.clone().or_else(keyfile::default_path);
    let path = path.ok_or("no home folder for the key: give --key-file")?;
    let key = keyfile::read_or_make(&path).map_err(|error| error.to_string())?;
    let (job, key) = grampus_net::derive_job(&key, &format!("{}/{text}", arguments.rdzv_id))
        .map_err(|error| error.to_string())?;
    Ok(Job::Several {
        nodes,
        node: arguments.node_rank,
        endpoint,
        job,
        key,
        key_file: path,
    })
}

/// torchrun's own default port.
const DEFAULT_PORT: u16 = 29400;

fn endpoint(text: &str) -> Result<Endpoint, String> {
    let wrong = || format!("--rdzv-endpoint must be HOST or HOST:PORT, it is `{text}`");
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
        let port = port
            .strip_prefix(':')
            .map_or(Ok(DEFAULT_PORT), str::parse)
            .map_err(|_| wrong())?;
        return Ok(Endpoint {
            host: host.to_owned(),
            port,
        });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
        None => (text, DEFAULT_PORT),
    };
    if host.is_empty() || port == 0 {
        Err(wrong())
    } else {
        Ok(Endpoint {
            host: host.to_owned(),
            port,
        })
    }
}

fn program(arguments: &RunArguments, python: Option<String>, threads: u32) -> Result<Program, String> {
    let given = &arguments.program;
    let script = Path::new(given);
    let is_script = !arguments.no_python && script.extension().is_some_and(|ending| ending == "py");
    let mut words = arguments.arguments.clone();
    let program = if arguments.module || is_script {
        if is_script && !arguments.module && !script.is_file() {
            let here = std::env::current_dir().unwrap_or_default();
            return Err(format!("there is no script {given} in {}", here.display()));
        }
        let flags = if arguments.module {
            vec!["-u", "-m", given]
        } else {
            vec!["-u", given]
        };
        words.splice(..0, flags.into_iter().map(str::to_owned));
        python.unwrap_or_else(|| "python3".to_owned())
    } else {
        find(given)
            .ok_or_else(|| format!("there is no program {given}: give a path, or a name that is in PATH"))?
    };
    let variables = [
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ];
    let mut environment: Vec<_> = variables
        .map(|name| (name.to_owned(), threads.to_string()))
        .into();
    environment.push(("TORCHELASTIC_RUN_ID".to_owned(), arguments.rdzv_id.clone()));
    environment.push((
        "TORCHELASTIC_MAX_RESTARTS".to_owned(),
        arguments.max_restarts.to_string(),
    ));
    Ok(Program {
        program,
        arguments: words,
        environment,
    })
}

/// As a shell would find it.
fn find(name: &str) -> Option<String> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| name.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.map(|path| path.to_string_lossy().into_owned())
}

fn seconds(value: f64, flag: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|length| !length.is_zero())
        .ok_or(format!("{flag} must be above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dashed(words: &[&str]) -> Vec<String> {
        with_dashes(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn underscores_become_dashes_before_the_program_only() {
        let seen = dashed(&[
            "grampus",
            "run",
            "--nproc_per_node=2",
            "--log_dir",
            "a_b",
            "--standalone",
            "t.py",
            "--my_flag",
        ]);
        let wanted = [
            "grampus",
            "run",
            "--nproc-per-node=2",
            "--log-dir",
            "a_b",
            "--standalone",
            "t.py",
            "--my_flag",
        ];
        assert_eq!(seen, wanted);
        assert_eq!(dashed(&["grampus", "run", "-n", "2", "x", "--a_b"])[5], "--a_b");
    }

    #[test]
    fn endpoints_are_read() {
        let read = |text| endpoint(text).map(|endpoint| (endpoint.host, endpoint.port));
        assert_eq!(read("a:1"), Ok(("a".to_owned(), 1)));
        assert_eq!(read("a"), Ok(("a".to_owned(), DEFAULT_PORT)));
        assert_eq!(read("[::1]:5"), Ok(("::1".to_owned(), 5)));
        assert!(read("a:b").is_err() && read(":5").is_err() && read("a:0").is_err());
    }

    #[test]
    fn counts_are_checked() {
        assert!(ranks("0").is_err() && ranks("x").is_err() && ranks("auto").is_ok());
        assert!(nodes("0").is_err() && nodes("1:2").unwrap_err().contains("range") && nodes("3") == Ok(3));
    }
}
