//! Layers, and no circles: a module may be read once those below it are known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};

/// A module's path below the crate.
type Module = Vec<String>;

/// The layers of the crate, the lowest first: a module imports from its own layer and from those
/// below. `ffi` is TensorFlow's boundary, which nothing else imports.
const LAYERS: &[&[&str]] = &[
    &["error", "device_type", "dtype", "kind", "settings", "dump"],
    &["sys", "tensor", "proto", "attr"],
    &["shader"],
    &["device"],
    &["layout"],
    &["kernels"],
    &["optimizer", "local"],
    &["checkup"],
    &["profiler", "report"],
    &["ffi"],
];

/// What a file says about other modules: paths as they are written, without those of tests.
#[derive(Default)]
struct Paths {
    /// Every path but those of `pub use`.
    named: Vec<Vec<String>>,
    /// The names that `use` brings in, each with its path.
    aliases: Vec<(String, Vec<String>)>,
    /// Whether the `use` being read passes names on to other modules.
    is_reexport: bool,
}

impl Paths {
    fn import(&mut self, path: Vec<String>, name: &syn::Ident) {
        self.aliases.push((name.to_string(), path.clone()));
        if !self.is_reexport {
            self.named.push(path);
        }
    }

    fn tree(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => self.named.push(prefix.to_vec()),
            syn::UseTree::Name(name) => self.import(with(&name.ident), &name.ident),
            syn::UseTree::Rename(rename) => self.import(with(&rename.ident), &rename.rename),
            syn::UseTree::Glob(_) => self.named.push(prefix.to_vec()),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.tree(prefix, item));
            }
        }
    }
}

/// Whether an item is compiled for tests alone.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("cfg")
            && matches!(&a.meta, syn::Meta::List(list) if list.tokens.to_string().contains("test"))
    })
}

impl<'a> Visit<'a> for Paths {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.is_reexport = !matches!(item.vis, syn::Visibility::Inherited);
            self.tree(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.named.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Every module that is a file.
fn modules(folder: &Path, at: &[String], into: &mut BTreeMap<Module, Paths>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            modules(&path, &[at, &[stem]].concat(), into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let is_root = ["mod", "lib", "main"].contains(&&*stem);
            let module = if is_root { at.to_vec() } else { [at, &[stem]].concat() };
            let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let mut paths = Paths::default();
            paths.visit_file(&file);
            into.insert(module, paths);
        }
    }
}

/// The module in which the item `path`, as `from` writes it, is defined: names that a module
/// imports and passes on are followed to their origin.
fn target<'m>(
    modules: &'m BTreeMap<Module, Paths>,
    from: &Module,
    path: &[String],
    depth: usize,
) -> Option<&'m Module> {
    let supers = path.iter().take_while(|s| *s == "super").count();
    let first = path.first()?;
    let full = if first == "crate" {
        path[1..].to_vec()
    } else if supers > 0 {
        [from.get(..from.len().checked_sub(supers)?)?, &path[supers..]].concat()
    } else {
        let rest = if first == "self" { &path[1..] } else { path };
        [&from[..], rest].concat()
    };
    // The longest part of the path that is a file; the rest are names within it.
    let found = (1..=full.len()).rev().find_map(|n| modules.get_key_value(&full[..n]));
    let (module, paths) = found?;
    let name = full.get(module.len());
    let alias = paths.aliases.iter().find(|(alias, _)| module != from && Some(alias) == name);
    match alias {
        Some((_, path)) if depth < 8 => target(modules, module, path, depth + 1).or(Some(module)),
        _ => Some(module),
    }
}

/// The modules that each module imports from.
fn graph(modules: &BTreeMap<Module, Paths>) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let targets = |(from, paths): (_, &Paths)| {
        let all = paths.named.iter().filter_map(|path| target(modules, from, path, 0));
        (from, all.filter(|to| *to != from).collect())
    };
    modules.iter().map(targets).collect()
}

/// Groups of modules of which each can be reached from each other along `next`.
fn circles<T: Ord + Copy>(next: &BTreeMap<T, BTreeSet<T>>) -> Vec<BTreeSet<T>> {
    let reach = |from: T| {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![from]);
        while let Some(at) = stack.pop() {
            for to in next.get(&at).into_iter().flatten() {
                if seen.insert(*to) {
                    stack.push(*to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<T, BTreeSet<T>> = next.keys().map(|m| (*m, reach(*m))).collect();
    let mut found: Vec<BTreeSet<T>> = Vec::new();
    for (module, targets) in &reached {
        if targets.contains(module) && !found.iter().any(|circle| circle.contains(module)) {
            let back = |other: &&T| reached.get(*other).is_some_and(|t| t.contains(module));
            found.push(targets.iter().filter(back).copied().collect());
        }
    }
    found
}

/// The modules of a folder of the repository.
fn source(folder: &str) -> BTreeMap<Module, Paths> {
    let mut all = BTreeMap::new();
    modules(&crate::root().join(folder), &[], &mut all);
    assert!(all.len() > 5, "{} modules only in {folder}", all.len());
    all
}

#[test]
fn layers_point_one_way() {
    let modules = source("src");
    let layer =
        |m: &Module| m.first().and_then(|top| LAYERS.iter().position(|l| l.contains(&&**top)));
    let mut wrong = Vec::new();
    for (from, targets) in graph(&modules) {
        let Some(own) = layer(from) else {
            assert!(from.is_empty(), "{} has no layer", from.join("::"));
            continue;
        };
        let above = targets.iter().filter(|to| layer(to).is_some_and(|l| l > own));
        wrong.extend(above.map(|to| format!("{} imports {}", from.join("::"), to.join("::"))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The circles between the units of a folder, each with the folder: a unit is a file, or a folder
/// with all that is below it. A folder's own `mod.rs` is its face, which its files may use.
fn circles_in(
    folder: &[String],
    graph: &BTreeMap<&Module, BTreeSet<&Module>>,
) -> Vec<(String, BTreeSet<String>)> {
    let unit = |m: &Module| m.strip_prefix(folder).and_then(|rest| rest.first().cloned());
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, targets) in graph {
        let Some(own) = unit(from) else { continue };
        let others = targets.iter().filter_map(|to| unit(to)).filter(|to| *to != own);
        names.entry(own.clone()).or_default().extend(others);
    }
    let next: BTreeMap<&str, BTreeSet<&str>> =
        names.iter().map(|(k, v)| (&**k, v.iter().map(|s| &**s).collect())).collect();
    let named = |circle: &BTreeSet<&str>| circle.iter().map(|s| (*s).to_owned()).collect();
    circles(&next).iter().map(|circle| (folder.join("::"), named(circle))).collect()
}

#[test]
fn units_of_a_folder_have_no_circles() {
    for root in ["src", "tools/gpu-kit/runner"] {
        let modules = source(root);
        let graph = graph(&modules);
        let folders: BTreeSet<&[String]> =
            modules.keys().flat_map(|m| (0..m.len()).map(|n| &m[..n])).collect();
        let found: Vec<_> = folders.iter().flat_map(|folder| circles_in(folder, &graph)).collect();
        assert!(found.is_empty(), "circles of imports in {root}: {found:#?}");
    }
}

#[test]
fn circles_through_folders_are_found() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let modules = ["a", "a::b", "c", "c::d"].map(module);
    let [a, b, c, d] = &modules;
    // `a` uses its file and `c`; a file of `c` uses a file of `a`.
    let graph = BTreeMap::from([
        (a, BTreeSet::from([b, c])),
        (b, BTreeSet::from([a])),
        (c, BTreeSet::from([d])),
        (d, BTreeSet::from([b])),
    ]);
    let found = BTreeSet::from(["a".to_owned(), "c".to_owned()]);
    assert_eq!(circles_in(&[], &graph), [(String::new(), found)]);
    assert_eq!(circles_in(&module("a"), &graph), []);
}

#[test]
fn circles_are_found() {
    let next = BTreeMap::from([
        (1, BTreeSet::from([2])),
        (2, BTreeSet::from([3, 4])),
        (3, BTreeSet::from([1])),
        (4, BTreeSet::new()),
    ]);
    assert_eq!(circles(&next), [BTreeSet::from([1, 2, 3])]);
}
