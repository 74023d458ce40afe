//! The log in the journal of systemd, and the files of logs.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::drain::OWN;
use crate::support::{Process, TIDEGATE, Tidegate, command, eventually, get, signal};

#[test]
fn lines_in_the_journal_have_priorities_and_no_time() {
    let directory = tempfile::tempdir().unwrap();
    let [config, journal] = ["tidegate.toml", "journal"].map(|name| directory.path().join(name));
    let text = format!("listen = \"127.0.0.1:0\"\nworkers = 1\n{OWN}");
    fs::write(&config, &text).unwrap();
    let stderr = File::create(&journal).unwrap();
    let stat = stderr.metadata().unwrap();
    let mut command = command(TIDEGATE);
    command.arg("run").arg("-c").arg(&config).stderr(stderr);
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()));
    let mut process = Process::start(&mut command);
    let has = |line: &str| fs::read_to_string(&journal).unwrap().lines().any(|other| other.starts_with(line));
    eventually("the start is logged", || has("<6> INFO listening on 127.0.0.1:"));
    fs::write(&config, text.replace("workers = 1", "workers = 0")).unwrap();
    signal(process.id(), "HUP");
    eventually("the failure is logged", || has("<3>ERROR SIGHUP: "));
    // The lines of the report are errors, too.
    assert!(has("<3>error: "), "{}", fs::read_to_string(&journal).unwrap());
    signal(process.id(), "TERM");
    assert!(process.wait().success());
    // Without the stream of the journal, lines have the time.
    let proxy = Tidegate::start(OWN);
    assert!(proxy.wait_log("listening on").starts_with("20"));
}

#[test]
fn user_signals_do_not_end_the_process() {
    let proxy = Tidegate::start(OWN);
    proxy.signal("USR1");
    proxy.wait_log("SIGUSR1: there is no log file to open again");
    proxy.signal("USR2");
    proxy.wait_log("SIGUSR2 has no effect");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
}

#[test]
fn the_file_of_the_access_log_is_opened_again_after_a_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let lines = |name: &str| fs::read_to_string(path(name)).unwrap_or_default().lines().count();
    let config = |file: &str| {
        let file = path(file);
        format!("[log]\naccess = \"json\"\naccess_file = \"{}\"\n{OWN}", file.display())
    };
    let proxy = Tidegate::start(&config("a.log"));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    eventually("the line is written", || lines("a.log") == 1);
    assert_eq!(fs::metadata(path("a.log")).unwrap().permissions().mode() & 0o777, 0o640);
    fs::rename(path("a.log"), path("a.log.1")).unwrap();
    proxy.signal("USR1");
    proxy.wait_log("a.log was opened again");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    eventually("the line is written", || lines("a.log") == 1);
    assert_eq!(lines("a.log.1"), 1);
    // A reload moves it to another file, and one that can't be opened fails the reload.
    proxy.reload(&config("b.log"));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    eventually("the line is written", || lines("b.log") == 1);
    proxy.write(&config("none/c.log"));
    proxy.signal("HUP");
    proxy.wait_log("none/c.log: No such file or directory");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    eventually("the line is written", || lines("b.log") == 2);
    // So does a start.
    let (status, errors) = Tidegate::fails(&config("none/c.log"));
    assert!(status.code() == Some(1) && errors[0].contains("can't open the access log "), "{errors:?}");
}
