//! The files of `src` and of the crates in `crates`, parsed: what each defines, imports and names.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, FnArg, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod, ItemUse, Signature, TraitItemFn,
    Type, UseTree,
};

/// The segments of a path: of a module from the root of the library, or as a file names it, with `crate` as the library.
pub type Segments = Vec<String>;

/// A source file, without its tests.
pub struct SourceFile {
    /// Its path from the root of the repository.
    pub path: String,
    /// Its module, from the root of the library: a crate is the module as which the library re-exports it.
    pub module: Segments,
    /// The names of its items.
    pub definitions: BTreeSet<String>,
    /// The names that `use` brings in, with what they are imported from.
    pub imports: HashMap<String, Segments>,
    /// The modules whose names it imports altogether.
    pub globs: Vec<Segments>,
    /// Every path that it names: in `use`, and in code.
    pub paths: Vec<Segments>,
    /// The types that it has methods of.
    pub inherent: BTreeSet<String>,
    /// Its functions and methods that have a body.
    pub functions: Vec<Function>,
    /// The lines on which it has code: no comments, no documentation, no tests.
    pub code: BTreeSet<usize>,
}

/// A function or a method.
pub struct Function {
    pub name: String,
    /// From its signature to its end.
    pub lines: usize,
    /// `self` among them, and each member of a tuple.
    pub parameters: usize,
    /// Whether a trait demands its parameters.
    pub is_of_trait: bool,
}

/// The paths of all files below a folder with this ending, in order.
pub fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path, ending));
        } else if path.to_str().unwrap().ends_with(ending) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Every source file: its path from the root of the repository, and its text.
pub fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = crates.flat_map(|path| files_below(&path.join("src"), ".rs")).collect();
    files.sort();
    files.extend(files_below(&root.join("src"), ".rs"));
    assert!(files.len() > 30);
    let named = |path: &PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    files.iter().map(|path| (named(path), fs::read_to_string(path).unwrap())).collect()
}

/// Every source file that is not a test, parsed once.
pub fn parsed() -> &'static [SourceFile] {
    static PARSED: LazyLock<Vec<SourceFile>> = LazyLock::new(|| {
        let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
        let sources = sources().into_iter().filter(|(path, _)| !is_test(path));
        sources.map(|(path, text)| SourceFile::parse(path, &text)).collect()
    });
    &PARSED
}

impl SourceFile {
    pub fn parse(path: String, text: &str) -> Self {
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut file = Self {
            module: module(&path),
            path,
            definitions: BTreeSet::new(),
            imports: HashMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
            inherent: BTreeSet::new(),
            functions: Vec::new(),
            code: BTreeSet::new(),
        };
        for item in parsed.items.iter().filter(|item| !is_test(attributes(item))) {
            file.add(item);
        }
        let root = root_of(&file.path);
        let paths = file.paths.iter_mut().chain(&mut file.globs).chain(file.imports.values_mut());
        paths.for_each(|path| name_from_library(path, &root));
        file
    }

    fn add(&mut self, item: &Item) {
        self.definitions.extend(name(item));
        self.definitions.extend(declared(item));
        match item {
            Item::Use(item) => {
                for (path, name) in flattened(&item.tree) {
                    match name {
                        Some(name) => drop(self.imports.insert(name, path)),
                        None => self.globs.push(path),
                    }
                }
            }
            Item::Impl(block) if block.trait_.is_none() => {
                if let Type::Path(named) = &*block.self_ty
                    && let Some(name) =
                        named.path.get_ident().or_else(|| named.path.segments.last().map(|it| &it.ident))
                {
                    self.inherent.insert(name.to_string());
                }
            }
            _ => {}
        }
        let mut contents = Contents::default();
        contents.visit_item(item);
        self.paths.append(&mut contents.uses);
        self.functions.append(&mut contents.functions);
        paths_in(item.to_token_stream(), &mut self.paths);
        lines_of(item.to_token_stream(), &mut self.code);
        self.code.retain(|line| !contents.tests.contains(line));
    }
}

/// What is within an item: every `use`, and every function.
#[derive(Default)]
struct Contents {
    uses: Vec<Segments>,
    functions: Vec<Function>,
    is_of_trait: bool,
    /// The lines of inner items that are there only for tests.
    tests: BTreeSet<usize>,
}

impl Contents {
    fn add_test(&mut self, item: &impl ToTokens) {
        lines_of(item.to_token_stream(), &mut self.tests);
    }

    fn add(&mut self, signature: &Signature, block: &Block) {
        self.functions.push(Function {
            name: signature.ident.to_string(),
            lines: block.span().end().line - signature.span().start().line + 1,
            parameters: signature.inputs.iter().map(parameters).sum(),
            is_of_trait: self.is_of_trait,
        });
    }
}

impl<'ast> Visit<'ast> for Contents {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.uses.extend(flattened(&item.tree).into_iter().map(|(path, _)| path));
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if is_test(&item.attrs) {
            return self.add_test(item);
        }
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if is_test(&item.attrs) {
            return self.add_test(item);
        }
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if is_test(&item.attrs) {
            return self.add_test(item);
        }
        let outer = std::mem::replace(&mut self.is_of_trait, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.is_of_trait = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_test(&item.attrs) {
            return self.add_test(item);
        }
        visit::visit_item_mod(self, item);
    }
}

/// The module that the root of a file's crate is in the library.
fn root_of(path: &str) -> Segments {
    let krate = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
    krate.map_or_else(Segments::new, re_exported)
}

/// The module as which the library re-exports a crate. The modules of `limit` are re-exported one by one.
fn re_exported(krate: &str) -> Segments {
    if krate == "limit" { Segments::new() } else { vec![krate.to_owned()] }
}

/// The module of a file; the library and the program are both the root.
fn module(path: &str) -> Segments {
    let (_, inner) = path.split_once("src/").unwrap();
    let inner = inner.strip_suffix(".rs").unwrap();
    let segments = inner.split('/').filter(|_| inner != "lib" && inner != "main").map(str::to_owned);
    root_of(path).into_iter().chain(segments).collect()
}

/// Replaces `crate` in a crate with this root, and the name of another crate, by the path in the library.
fn name_from_library(path: &mut Segments, root: &[String]) {
    let Some(first) = path.first() else { return };
    let module = match first.strip_prefix("tidegate_") {
        Some(krate) => re_exported(krate),
        None if first == "crate" => root.to_vec(),
        None => return,
    };
    path.splice(..1, std::iter::once("crate".to_owned()).chain(module));
}

/// Each path of a `use`, with the name that it gets; a glob has none.
fn flattened(tree: &UseTree) -> Vec<(Segments, Option<String>)> {
    let one = |ident: &syn::Ident| vec![ident.to_string()];
    match tree {
        UseTree::Path(path) => {
            let rest = flattened(&path.tree).into_iter();
            rest.map(|(rest, name)| {
                let full: Segments = one(&path.ident).into_iter().chain(rest).collect();
                // `self` in braces is the module before them.
                let name = if name.as_deref() == Some("self") { Some(path.ident.to_string()) } else { name };
                (full.into_iter().filter(|it| it != "self" || path.ident == "self").collect(), name)
            })
            .collect()
        }
        UseTree::Name(name) => vec![(one(&name.ident), Some(name.ident.to_string()))],
        UseTree::Rename(rename) => vec![(one(&rename.ident), Some(rename.rename.to_string()))],
        UseTree::Glob(_) => vec![(Segments::new(), None)],
        UseTree::Group(group) => group.items.iter().flat_map(flattened).collect(),
    }
}

/// Every path of two or more segments among these tokens, also within calls of macros.
fn paths_in(tokens: TokenStream, paths: &mut Vec<Segments>) {
    let mut current = Segments::new();
    let mut colons = 0;
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ':' && !current.is_empty() => {
                colons += 1;
                // A single colon ends a path.
                if colons == 1 && punct.spacing() == Spacing::Alone {
                    close(&mut current, paths);
                    colons = 0;
                }
                continue;
            }
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    close(&mut current, paths);
                }
                current.push(ident.to_string());
                colons = 0;
                continue;
            }
            TokenTree::Group(group) => {
                close(&mut current, paths);
                // Attributes hold names of their own, and documentation.
                let is_attribute = group.delimiter() == Delimiter::Bracket && is_meta(group.stream());
                if !is_attribute {
                    paths_in(group.stream(), paths);
                }
            }
            _ => close(&mut current, paths),
        }
        colons = 0;
    }
    close(&mut current, paths);
}

/// The lines on which these tokens are, apart from documentation.
fn lines_of(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in tokens {
        let span = token.span();
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && is_meta(group.stream()) => {
            }
            TokenTree::Group(group) => {
                lines.extend([group.span_open().start().line, group.span_close().end().line]);
                lines_of(group.stream(), lines);
            }
            // Of an attribute, which is not on a line of its own.
            TokenTree::Punct(punct) if punct.as_char() == '#' => {}
            _ => lines.extend(span.start().line..=span.end().line),
        }
    }
}

/// How many parameters an argument is: each member of a tuple is one.
fn parameters(argument: &FnArg) -> usize {
    let FnArg::Typed(argument) = argument else { return 1 };
    let mut inner = &*argument.ty;
    while let Type::Reference(reference) = inner {
        inner = &reference.elem;
    }
    if let Type::Tuple(tuple) = inner { tuple.elems.len().max(1) } else { 1 }
}

fn close(current: &mut Segments, paths: &mut Vec<Segments>) {
    if current.len() > 1 {
        paths.push(std::mem::take(current));
    }
    current.clear();
}

/// Whether this is `doc = "…"`.
fn is_meta(tokens: TokenStream) -> bool {
    matches!(tokens.into_iter().next(), Some(TokenTree::Ident(ident)) if ident == "doc")
}

/// Whether an item is there only for tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let names = |name: &str| attribute.path().is_ident(name);
        let tokens = attribute.meta.to_token_stream().to_string();
        names("test") || names("cfg") && tokens.contains("test") && !tokens.contains("not")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name of the type that `keys!` or `words!` of the configuration declares.
fn declared(item: &Item) -> Option<String> {
    let Item::Macro(item) = item else { return None };
    let declares = ["keys", "words"].iter().any(|name| item.mac.path.is_ident(name));
    let mut tokens = item.mac.tokens.clone().into_iter().filter(|_| declares);
    tokens.find_map(|token| if let TokenTree::Ident(name) = token { Some(name.to_string()) } else { None })
}

/// The name of an item that others can use; modules are files of their own.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
