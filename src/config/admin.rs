//! `[admin]`.

use std::net::SocketAddr;

use super::listeners;
use super::reader::Item;
use crate::admin::{AdminSpec, Token};
use crate::server::ListenerSpec;

/// Reads the admin interface; `others` are the listeners for clients.
pub(super) fn admin(item: Item<'_>, others: Option<&[ListenerSpec]>) -> Option<AdminSpec> {
    let mut table = item.table("[admin]")?;
    let place = table.required("listen", "listen = \"127.0.0.1:9900\"");
    let address = place.and_then(listeners::address);
    let has_token = table.key_span("token").is_some();
    let token = table.item("token").map_or(Some(None), |item| token(item).map(Some));
    table.close();
    let (address, place) = (address?, place?);
    if !has_token && !address.ip().to_canonical().is_loopback() {
        let problem = place.error("an admin interface that others can reach needs a token");
        return place.refuse(problem.help(
            "add token = \"${ADMIN_TOKEN}\" and set that variable, such as to what `openssl rand -hex 32` \
             says; or listen on 127.0.0.1",
        ));
    }
    if is_taken(address, others.unwrap_or_default()) {
        let problem = place.error("a listener for clients has this address already");
        return place.refuse(problem.help("give [admin] a port of its own"));
    }
    Some(AdminSpec { address, token: token? })
}

fn token(item: Item<'_>) -> Option<Token> {
    let text = item.string()?;
    // The message must not repeat it.
    Token::new(&text.value).or_else(|| {
        let problem = item.error("a token has visible ASCII characters only, no blanks, and is not empty");
        item.refuse(problem.help("make one with: openssl rand -hex 32"))
    })
}

fn is_taken(address: SocketAddr, others: &[ListenerSpec]) -> bool {
    address.port() != 0 && others.iter().any(|other| other.address == address)
}
