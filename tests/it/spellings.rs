//! One value, many spellings: no other spelling of a method, cookie, header name, path or token gives a request a fresh
//! count or a way round a rule.

use crate::support::{Tidegate, Upstream, get};

#[test]
fn a_prefix_is_cut_in_whatever_spelling_it_comes() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/v1:beta/*\"\nupstream = \"{0}\"\nrewrite = {{ strip_prefix = \"/v1:beta\" }}\n\
         [[routes]]\npath = \"/a%40b/*\"\nupstream = \"{0}\"\nrewrite = {{ strip_prefix = \"/a%40b\" }}\n",
        server.url()
    ));
    for (sent, received) in [
        ("/v1:beta/x", "/x"),
        ("/v1%3Abeta/x", "/x"),
        ("/v1%3abeta/x%3Ay", "/x%3Ay"),
        ("/%761%3Abeta/", "/"),
        ("/a@b/x", "/x"),
        ("/a%40b/x", "/x"),
    ] {
        let request = get(proxy.addr(), sent, &[]).echoed();
        assert_eq!(request.start, format!("GET {received} HTTP/1.1"), "{sent}");
    }
}
