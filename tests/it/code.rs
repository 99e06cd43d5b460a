//! The sources of the workspace, as `syn` reads them: the paths that a file names, and the methods
//! that it has and calls.

use std::fs;
use std::path::PathBuf;

use syn::buffer::{Cursor, TokenBuffer};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItemFn, ItemImpl, ItemMod, ItemUse, Macro, Member, Token, UseTree};

use crate::common::root;

pub(crate) struct Source {
    /// The path from the root of the repository.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// All files below a folder.
pub(crate) fn sources(dir: &str) -> Vec<Source> {
    let mut files = Vec::new();
    let mut dirs = vec![root().join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a readable file");
                let path = path.strip_prefix(root()).expect("below the root").to_owned();
                files.push(Source { path, text });
            }
        }
    }
    assert!(!files.is_empty(), "no files in {dir}");
    files
}

impl Source {
    /// The modules of the file, from below the folder `src` of its crate, the outermost first.
    pub(crate) fn modules(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let names = path.iter().map(|name| name.to_string_lossy().into_owned());
        let below = names.skip_while(|name| name != "src").skip(1);
        below.filter(|name| name != "mod" && name != "lib").collect()
    }

    pub(crate) fn is_test(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "tests")
    }

    pub(crate) fn read(&self) -> Named {
        read(self.modules(), &self.text)
    }
}

/// The names in code that belongs to these modules.
pub(crate) fn read(modules: Vec<String>, text: &str) -> Named {
    let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{modules:?}: {error}"));
    let mut reader = Reader { at: modules, ..Reader::default() };
    reader.visit_file(&file);
    reader.named
}

#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) paths: Vec<NamedPath>,
    /// The methods and functions of a type.
    pub(crate) methods: Vec<(String, String)>,
    pub(crate) calls: Vec<Call>,
}

#[derive(Debug)]
pub(crate) struct NamedPath {
    /// The path as the file has it, with the braces of a `use` resolved.
    pub(crate) written: Vec<String>,
    /// The path from the root of the crate.
    pub(crate) parts: Vec<String>,
    /// Whether the path began with `crate`, `self` or `super`. Any other is a path of the crate
    /// only if it leads to a module.
    pub(crate) is_anchored: bool,
    /// Named by `pub use`.
    pub(crate) is_passed_on: bool,
    /// Named in a `mod tests` of the file.
    pub(crate) is_test: bool,
}

/// A call of a method or of a function of a type.
#[derive(Debug)]
pub(crate) enum Call {
    /// `self.method()`, `Type::function()`, with the type.
    On(String, String),
    /// `self.field.method()`
    Field(String, String),
}

#[derive(Default)]
struct Reader {
    /// The modules around the code.
    at: Vec<String>,
    /// The type of the `impl` around the code.
    owner: Option<String>,
    is_test: bool,
    named: Named,
}

impl Reader {
    fn path(&mut self, names: &[String], is_passed_on: bool) {
        let mut parts = self.at.clone();
        let mut is_anchored = true;
        let mut rest = names;
        while let [name, after @ ..] = rest {
            match name.as_str() {
                "crate" => parts.clear(),
                "self" => {}
                "super" => drop(parts.pop()),
                _ => break,
            }
            rest = after;
        }
        if rest.len() == names.len() {
            is_anchored = false;
        }
        parts.extend(rest.iter().cloned());
        let is_test = self.is_test;
        let written = names.to_vec();
        self.named.paths.push(NamedPath { written, parts, is_anchored, is_passed_on, is_test });
    }

    fn tree(&mut self, before: &[String], tree: &UseTree, is_passed_on: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree, is_passed_on),
            UseTree::Name(name) => self.path(&with(&name.ident), is_passed_on),
            UseTree::Rename(name) => self.path(&with(&name.ident), is_passed_on),
            UseTree::Glob(_) => self.path(before, is_passed_on),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(before, tree, is_passed_on));
            }
        }
    }

    fn call(&mut self, call: Call) {
        if !self.is_test {
            self.named.calls.push(call);
        }
    }

    /// The paths in a macro whose grammar only the macro knows.
    fn tokens(&mut self, mut cursor: Cursor<'_>) {
        let mut names: Vec<String> = Vec::new();
        while !cursor.eof() {
            if let Some((inner, _, _, after)) = cursor.any_group() {
                self.tokens(inner);
                cursor = after;
            } else if let Some((ident, after)) = cursor.ident() {
                names.push(ident.to_string());
                cursor = after;
                let colons = cursor.punct().filter(|(punct, _)| punct.as_char() == ':');
                let colons = colons.and_then(|(_, after)| after.punct());
                match colons.filter(|(punct, _)| punct.as_char() == ':') {
                    Some((_, after)) => cursor = after,
                    None => self.path(&std::mem::take(&mut names), false),
                }
            } else if let Some((_, after)) = cursor.token_tree() {
                cursor = after;
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let was_test = self.is_test;
        self.is_test |= item.ident == "tests";
        self.at.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.at.pop();
        self.is_test = was_test;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_passed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&[], &item.tree, is_passed_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.path(&names, false);
        if let [.., owner, function] = &names[..] {
            let own = self.owner.clone().filter(|_| owner == "Self");
            self.call(Call::On(own.unwrap_or_else(|| owner.clone()), function.clone()));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.visit_path(&called.path);
        let tokens = TokenBuffer::new2(called.tokens.clone());
        self.tokens(tokens.begin());
        // Most macros, like `assert!` and `format!`, take expressions. The reader knows their paths
        // by now.
        let arguments = called.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        for argument in arguments.iter().flatten() {
            self.visit_expr(argument);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let mut owner = None;
        if let syn::Type::Path(path) = &*item.self_ty {
            owner = path.path.segments.last().map(|part| part.ident.to_string());
        }
        let before = std::mem::replace(&mut self.owner, owner);
        visit::visit_item_impl(self, item);
        self.owner = before;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if let Some(owner) = self.owner.clone().filter(|_| !self.is_test) {
            self.named.methods.push((owner, item.sig.ident.to_string()));
        }
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let method = call.method.to_string();
        if let Some(owner) = self.owner.clone().filter(|_| is_self(&call.receiver)) {
            self.call(Call::On(owner, method));
        } else if let Expr::Field(field) = &*call.receiver
            && let Member::Named(name) = &field.member
            && of_self(&field.base)
        {
            self.call(Call::Field(name.to_string(), method));
        }
        visit::visit_expr_method_call(self, call);
    }
}

fn is_self(expr: &Expr) -> bool {
    matches!(expr, Expr::Path(path) if path.path.is_ident("self"))
}

/// `self`, or a field of it at any depth.
fn of_self(expr: &Expr) -> bool {
    is_self(expr) || matches!(expr, Expr::Field(field) if of_self(&field.base))
}
