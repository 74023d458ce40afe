//! The public API of the library: a change of it is a change of `surface.txt`, which `UPDATE=1` writes. A line that changes or is
//! removed needs a version that semantic versioning calls incompatible.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use quote::{ToTokens, quote};
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Type, UseTree, Visibility};
use tidegate::limits::{
    Allowed, Client, ConfigErrors, Decision, Denied, Error, LimitState, LimitedBody, Limiter, RateLimit,
    RateLimitLayer,
};

use crate::source::files::files_below;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/library/surface.txt");

#[test]
fn the_public_api_is_the_committed_one() {
    let surface = surface();
    assert!(surface.contains("Limiter :: pub fn check"), "{surface}");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(GOLDEN, &surface).unwrap();
    }
    let committed = fs::read_to_string(GOLDEN).unwrap_or_default();
    assert_eq!(surface, committed, "UPDATE=1 writes tests/it/library/surface.txt");
}

#[test]
fn types_can_be_sent_and_shared() {
    fn is_send_and_sync<T: Send + Sync + 'static>() {}
    is_send_and_sync::<Allowed>();
    is_send_and_sync::<Client>();
    is_send_and_sync::<ConfigErrors>();
    is_send_and_sync::<Decision>();
    is_send_and_sync::<Denied>();
    is_send_and_sync::<Error>();
    is_send_and_sync::<LimitState<'static>>();
    is_send_and_sync::<LimitedBody<()>>();
    is_send_and_sync::<Limiter>();
    is_send_and_sync::<RateLimit<()>>();
    is_send_and_sync::<RateLimitLayer>();
}

/// Every public item of `tidegate::limits`, one a line.
fn surface() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names = exported(&root.join("limits.rs"));
    let mut lines = BTreeSet::new();
    for path in files_below(&root.join("limits"), ".rs") {
        let items = items(&path);
        for item in &items {
            match item {
                Item::Impl(block) => describe_impl(block, &names, &mut lines),
                item => describe_type(item, &names, &mut lines),
            }
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// The names that a module exports.
fn exported(path: &Path) -> BTreeSet<String> {
    fn names(tree: &UseTree, found: &mut BTreeSet<String>) {
        match tree {
            UseTree::Path(path) => names(&path.tree, found),
            UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, found)),
            UseTree::Name(name) => drop(found.insert(name.ident.to_string())),
            UseTree::Rename(_) | UseTree::Glob(_) => panic!("a name is exported as it is"),
        }
    }
    let mut found = BTreeSet::new();
    for item in items(path) {
        match item {
            Item::Use(item) if matches!(item.vis, Visibility::Public(_)) => names(&item.tree, &mut found),
            Item::Use(_) | Item::Mod(_) => {}
            item => panic!("limits.rs has exports alone, not {}", item.to_token_stream()),
        }
    }
    found
}

/// The items of a file, with those in macros.
fn items(path: &Path) -> Vec<Item> {
    let parsed = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
    let expand = |item| match item {
        Item::Macro(item) if item.mac.path.is_ident("pin_project") => {
            syn::parse2::<syn::File>(item.mac.tokens).unwrap().items
        }
        item => vec![item],
    };
    parsed.items.into_iter().flat_map(expand).collect()
}

/// Adds a type with its public parts.
fn describe_type(item: &Item, names: &BTreeSet<String>, lines: &mut BTreeSet<String>) {
    match item {
        Item::Struct(item) if names.contains(&item.ident.to_string()) => {
            let (attributes, name, generics) = (attributes(&item.attrs), &item.ident, &item.generics);
            lines.insert(format!("{attributes}pub struct {name} {}", quote!(#generics)));
            for field in public(&item.fields) {
                lines.insert(format!("{name} . {field}"));
            }
        }
        Item::Enum(item) if names.contains(&item.ident.to_string()) => {
            let (attributes, name) = (attributes(&item.attrs), &item.ident);
            lines.insert(format!("{attributes}pub enum {name}"));
            for variant in &item.variants {
                let fields: Vec<String> =
                    variant.fields.iter().map(|field| field.ty.to_token_stream().to_string()).collect();
                lines.insert(format!("{name} :: {} ({})", variant.ident, fields.join(", ")));
            }
        }
        Item::Struct(_) | Item::Enum(_) | Item::Use(_) | Item::Impl(_) => {}
        Item::Type(item) => assert!(!names.contains(&item.ident.to_string())),
        item => assert!(!item.to_token_stream().to_string().starts_with("pub fn"), "{}", quote!(#item)),
    }
}

/// Adds the public methods of a type, or the trait that it implements.
fn describe_impl(block: &ItemImpl, names: &BTreeSet<String>, lines: &mut BTreeSet<String>) {
    let name = match &*block.self_ty {
        Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
        other => panic!("{}", other.to_token_stream()),
    };
    if !names.contains(&name) {
        return;
    }
    let (generics, types) = (&block.generics, &block.self_ty);
    let bounds = &block.generics.where_clause;
    if let Some((_, path, _)) = &block.trait_ {
        let parts = block.items.iter().filter_map(|item| match item {
            ImplItem::Type(item) => Some(quote!(#item).to_string()),
            _ => None,
        });
        let parts: Vec<String> = parts.collect();
        lines.insert(
            format!("impl {} {}", quote!(#generics #path for #types #bounds), parts.join(" "))
                .replace("  ", " "),
        );
        return;
    }
    for item in &block.items {
        if let ImplItem::Fn(function) = item
            && matches!(function.vis, Visibility::Public(_))
        {
            let signature = &function.sig;
            lines.insert(format!("{name} :: {}pub {}", attributes(&function.attrs), quote!(#signature)));
        }
    }
}

fn public(fields: &Fields) -> impl Iterator<Item = String> {
    fields.iter().filter(|field| matches!(field.vis, Visibility::Public(_))).map(|field| {
        let (name, ty) = (&field.ident, &field.ty);
        quote!(#name : #ty).to_string()
    })
}

/// The attributes that callers depend on.
fn attributes(attributes: &[Attribute]) -> String {
    let is_shown = |attribute: &&Attribute| {
        ["derive", "non_exhaustive"].iter().any(|name| attribute.path().is_ident(name))
    };
    attributes.iter().filter(is_shown).map(|attribute| quote!(#attribute).to_string() + " ").collect()
}
