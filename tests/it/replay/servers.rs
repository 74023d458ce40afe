//! Logs that the real nginx, Apache httpd, `HAProxy` and Caddy write in their default formats, after the same requests.

mod reading;
mod traffic;

use std::fs::{self, File};
use std::io::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::TempDir;
use tidegate::replay::Format;

use self::reading::{Host, Logged, Times, check};
use self::traffic::{
    CUT, HANDSHAKE, NO_PROTOCOL, NOTHING, READY, Sent, SlowUpstream, Traffic, now, wait_next_second,
};
use crate::support::{TIDEGATE, WebServer, command, eventually};

const COMBINED: Logged = Logged {
    host: Host::OfTarget,
    has_headers: true,
    has_users: false,
    is_unicode: false,
    times: Times::EndSeconds,
};
const NGINX: Logged = Logged { has_users: true, ..COMBINED };
const JSON: Logged = Logged {
    host: Host::OfRequest,
    has_headers: true,
    has_users: false,
    is_unicode: true,
    times: Times::Exact,
};

/// A file that a server gets.
fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// nginx with its default log and one of JSON. It has the addresses of IPv4 clients as IPv4-mapped ones, as a listener for
/// both families has them.
fn nginx(upstream: &SlowUpstream) -> WebServer {
    let authority = upstream.authority();
    WebServer::start("nginx", &READY.bytes(), |directory, port| {
        let config = format!(
            r#"daemon off; master_process off; user root; pid nginx.pid; events {{}}
            http {{
                client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
                uwsgi_temp_path uwsgi; scgi_temp_path scgi;
                log_format json escape=json '{{"msec":"$msec","request_time":"$request_time",'
                    '"remote_addr":"$remote_addr","request_method":"$request_method",'
                    '"request_uri":"$request_uri","server_protocol":"$server_protocol",'
                    '"status":"$status","body_bytes_sent":"$body_bytes_sent","http_host":"$http_host",'
                    '"http_referer":"$http_referer","http_user_agent":"$http_user_agent",'
                    '"remote_user":"$remote_user"}}';
                access_log access.log;
                access_log json.log json;
                server {{
                    listen [::ffff:127.0.0.1]:{port} ipv6only=off; listen [::1]:{port};
                    location / {{ proxy_pass http://{authority}; }}
                }}
            }}"#
        );
        write(directory, "nginx.conf", &config);
        strings(&["-p", directory.to_str().unwrap(), "-c", "nginx.conf", "-e", "stderr"])
    })
}

#[test]
fn nginx_logs_the_end_of_each_response() {
    let (upstream, since) = (SlowUpstream::start(), now());
    let mut server = nginx(&upstream);
    let mut traffic = Traffic::begin(&server, &upstream, &["access.log", "json.log"], since);
    traffic.send_all(&[(NO_PROTOCOL, 1), (HANDSHAKE, 1), (CUT, 1), (NOTHING, 0)]);
    let sent = traffic.sent();
    server.stop();
    let json = Logged { has_users: true, ..JSON };
    check(&[server.path("access.log")], &Format::Combined, NGINX, &sent, 3);
    check(&[server.path("json.log")], &Format::NginxJson, json, &sent, 3);
}

#[test]
fn apache_logs_the_arrival_of_each_request() {
    let (upstream, since) = (SlowUpstream::start(), now());
    let authority = upstream.authority();
    let mut server = WebServer::start("apache2", &READY.bytes(), |directory, port| {
        let modules = ["mpm_event", "authz_core", "proxy", "proxy_http"];
        let modules =
            modules.map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
        let root = directory.display();
        // The formats are those of Debian's apache2.conf.
        let config = modules.concat()
            + &format!(
                r#"ServerRoot "{root}"
                ServerName vhost.example.com
                Listen 127.0.0.1:{port}
                Listen [::1]:{port}
                DefaultRuntimeDir "{root}"
                PidFile apache2.pid
                User www-data
                Group www-data
                ErrorLog stderr.log
                ProxyPass "/" "http://{authority}/"
                LogFormat "%v:%p %h %l %u %t \"%r\" %>s %O \"%{{Referer}}i\" \"%{{User-Agent}}i\"" vhost_combined
                LogFormat "%h %l %u %t \"%r\" %>s %O \"%{{Referer}}i\" \"%{{User-Agent}}i\"" combined
                LogFormat "%h %l %u %t \"%r\" %>s %O" common
                CustomLog vhost.log vhost_combined
                CustomLog combined.log combined
                CustomLog common.log common
                "#
            );
        write(directory, "apache2.conf", &config);
        strings(&["-X", "-f", directory.join("apache2.conf").to_str().unwrap()])
    });
    let mut traffic = Traffic::begin(&server, &upstream, &["vhost.log", "combined.log", "common.log"], since);
    traffic.send_all(&[(NO_PROTOCOL, 1), (HANDSHAKE, 1), (CUT, 0), (NOTHING, 0)]);
    let sent = traffic.sent();
    server.stop();
    let combined = Logged { times: Times::ArrivalSeconds, ..COMBINED };
    let common = Logged { has_headers: false, ..combined };
    let vhost = Logged { host: Host::Configured("vhost.example.com"), ..combined };
    check(&[server.path("common.log")], &Format::Common, common, &sent, 2);
    check(&[server.path("combined.log")], &Format::Combined, combined, &sent, 2);
    check(&[server.path("vhost.log")], &Format::VhostCombined, vhost, &sent, 2);
}

#[test]
fn haproxy_logs_local_times_and_durations() {
    let (upstream, since) = (SlowUpstream::start(), now());
    let authority = upstream.authority();
    let mut server = WebServer::start("haproxy", &READY.bytes(), |directory, port| {
        let syslog = syslog_file(&directory.join("syslog"));
        let config = format!(
            "global\n  log stdout format raw local0\n  log 127.0.0.1:{syslog} local0\n  nbthread 1\n\
             defaults\n  mode http\n  log global\n  option httplog\n\
             \x20 timeout client 10s\n  timeout server 10s\n  timeout connect 10s\n\
             frontend http-in\n  bind 127.0.0.1:{port}\n  bind [::1]:{port}\n  default_backend static\n\
             backend static\n  server srv1 {authority}\n"
        );
        write(directory, "haproxy.cfg", &config);
        strings(&["-db", "-f", "haproxy.cfg"])
    });
    let mut traffic = Traffic::begin(&server, &upstream, &["stdout", "syslog"], since);
    traffic.send_all(&[(NO_PROTOCOL, 1), (HANDSHAKE, 1), (CUT, 1), (NOTHING, 1)]);
    let sent = traffic.sent();
    server.stop();
    let logged = Logged { has_headers: false, times: Times::Exact, ..COMBINED };
    for log in ["stdout", "syslog"] {
        check(&[server.path(log)], &Format::HaproxyHttp, logged, &sent, 4);
    }
}

/// Writes what arrives on a port to a file, as a syslog server does; returns the port.
fn syslog_file(path: &Path) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut file = File::create(path).unwrap();
    std::thread::spawn(move || {
        let mut message = vec![0; 65_536];
        while let Ok(length) = socket.recv(&mut message) {
            let message = message[..length].trim_ascii_end();
            // The file may be deleted already, after the test.
            let _ = file.write_all(&[message, b"\n"].concat());
        }
    });
    port
}

#[test]
fn caddy_logs_json() {
    let (upstream, since) = (SlowUpstream::start(), now());
    let authority = upstream.authority();
    let mut server = WebServer::start("caddy", &READY.bytes(), |directory, port| {
        let config = format!(
            "{{\n  admin off\n  auto_https off\n}}\n\
             http://:{port} {{\n  bind 127.0.0.1 ::1\n  log {{\n    output file access.log\n  }}\n\
             \x20 reverse_proxy {authority}\n}}\n"
        );
        write(directory, "Caddyfile", &config);
        strings(&["run", "--config", "Caddyfile", "--adapter", "caddyfile"])
    });
    let mut traffic = Traffic::begin(&server, &upstream, &["access.log"], since);
    traffic.send_all(&[(NO_PROTOCOL, 0), (HANDSHAKE, 0), (CUT, 0), (NOTHING, 0)]);
    let sent = traffic.sent();
    server.stop();
    check(&[server.path("access.log")], &Format::CaddyJson, JSON, &sent, 0);
}

/// Two files of a log of nginx, which was rotated between them, of which the older one is compressed by gzip and the newer
/// one by zstd; and a plain file of all lines.
struct Rotated {
    directory: TempDir,
    sent: Vec<Sent>,
}

impl Rotated {
    fn write() -> Self {
        let (upstream, since) = (SlowUpstream::start(), now());
        let mut server = nginx(&upstream);
        let (log, older) = (server.path("access.log"), server.path("access.log.1"));
        let mut traffic = Traffic::begin(&server, &upstream, &["json.log"], since);
        traffic.send_requests();
        // The lines of one second are spread within it file by file, so the files have none in common.
        wait_next_second();
        fs::rename(&log, &older).unwrap();
        server.signal("USR1");
        eventually("nginx has a new log", || log.exists());
        traffic.send_requests();
        let sent = traffic.sent();
        server.stop();
        let directory = tempfile::tempdir().unwrap();
        let [older, newer] = [older, log].map(|log| fs::read(log).unwrap());
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&older).unwrap();
        let rotated = Self { directory, sent };
        fs::write(rotated.path("access.log.gz"), encoder.finish().unwrap()).unwrap();
        let zstd = compress_to_vec(&newer[..], CompressionLevel::Fastest);
        fs::write(rotated.path("access.log.zst"), zstd).unwrap();
        fs::write(rotated.path("access.log"), [older, newer].concat()).unwrap();
        rotated
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

#[test]
fn the_files_of_a_rotated_log_are_read_in_any_order() {
    let rotated = Rotated::write();
    for names in [["access.log.zst", "access.log.gz"], ["access.log.gz", "access.log.zst"]] {
        let logs = names.map(|name| rotated.path(name));
        check(&logs, &Format::Combined, NGINX, &rotated.sent, 0);
    }
}

#[test]
fn a_log_is_read_from_standard_input() {
    let rotated = Rotated::write();
    let config = "listen = \"127.0.0.1:0\"\n[limits.all]\nrate = \"10/s\"\nkey = \"client_ip\"\n\
                  [[routes]]\npath = \"/*\"\nlimits = [\"all\"]\nrespond = {}\n";
    fs::write(rotated.path("tidegate.toml"), config).unwrap();
    let output = command(TIDEGATE)
        .args(["replay", "-c", "tidegate.toml", "-"])
        .current_dir(&rotated.directory)
        .stdin(File::open(rotated.path("access.log")).unwrap())
        .output()
        .unwrap();
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let all: Vec<_> = rows.filter(|row| row.first() == Some(&"all")).collect();
    assert_eq!(all[0][..2], ["all", &rotated.sent.len().to_string()], "{table}{errors}");
    assert!(output.status.success(), "{errors}");
}
