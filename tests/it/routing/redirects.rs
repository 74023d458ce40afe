//! Redirects of routes and of listeners.

use crate::support::{Authority, Client, Message, Tidegate, TlsClient, curl, get};

fn redirect(response: &Message) -> (u16, String) {
    (response.status(), response.header("location").unwrap_or_default().to_owned())
}

#[test]
fn routes_redirect_with_parts_of_the_request() {
    let proxy = Tidegate::start(
        "[[routes]]
host = \"old.test\"
path = \"/*\"
respond = { redirect = \"{scheme}://www.{host}:{port}{path_and_query}\", status = 301 }
[[routes]]
path = \"/orders/{id}\"
methods = [\"GET\"]
respond = { redirect = \"/v2/orders?id={id}&{query}\" }
[limits.few]
rate = \"1/hour\"
key = \"client_ip\"
[[routes]]
path = \"/limited\"
limits = [\"few\"]
respond = { redirect = \"{path}/x\", status = 307 }
",
    );
    let mut client = Client::connect(proxy.addr());
    let mut moved = |target: &str, host: &str| redirect(&client.get(target, &[&format!("Host: {host}")]));
    assert_eq!(
        moved("//a/../b%41?c=%20", "OLD.test:81"),
        (301, "http://www.old.test:81/bA?c=%20".to_owned())
    );
    assert_eq!(moved("/orders/7%26x?full=1", "a.test"), (308, "/v2/orders?id=7%26x&full=1".to_owned()));
    assert_eq!(moved("/limited", "a.test"), (307, "/limited/x".to_owned()));
    assert_eq!(moved("/limited", "a.test").0, 429);
}

#[test]
fn a_listener_redirects_to_https() {
    let authority = Authority::new();
    authority.sign("api.test");
    let proxy = Tidegate::start(&format!(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nredirect_to_https = true\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n{}\n\
         [[routes]]\npath = \"/*\"\nrespond = {{ body = \"served\" }}\n",
        authority.listener("api.test")
    ));
    let [plain, secure] = proxy.addresses(2)[..] else { panic!("two listeners") };
    let moved = redirect(&get(plain, "/a?b=1", &["Host: api.test:80"]));
    // The port of the file is 0: a free one was chosen.
    assert_eq!(moved, (308, "https://api.test:0/a?b=1".to_owned()));
    assert_eq!(get(plain, "/a", &["Host: a b"]).status(), 400);
    // A trusted proxy has received this one by HTTPS.
    assert_eq!(get(plain, "/", &["X-Forwarded-Proto: https"]).text(), "served");
    let config = authority.client(None, rustls::ALL_VERSIONS);
    let mut tls = TlsClient::connect(&config, "api.test", secure).unwrap();
    assert_eq!(tls.get("/").unwrap().text(), "served");
}

#[test]
fn curl_follows_a_redirect() {
    let proxy = Tidegate::start(
        "[[routes]]\npath = \"/new/*\"\nrespond = { body = \"new place\" }\n\
         [[routes]]\npath = \"/old/{name}\"\nrespond = { redirect = \"/new/{name}?{query}\" }\n",
    );
    let url = format!("http://{}/old/a%20b?c=d", proxy.addr());
    let (_, message, _) = curl(&["--location", &url]);
    assert!(message.text().ends_with("new place"), "{}", message.text());
}
