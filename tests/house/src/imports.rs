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
    &["sys", "tensor"],
    &["shader"],
    &["device"],
    &["layout"],
    &["kernels"],
    &["optimizer", "local"],
    &["checkup"],
    &["profiler", "report"],
    &["ffi"],
];

/// Groups of modules that still import each other in a circle. A new one fails the test, and so
/// does one that is gone from the code but not from here.
const CIRCLES: &[&[&str]] = &[];

/// The imports of a file: paths as they are written, without those of tests.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn tree(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => self.0.push(prefix.to_vec()),
            syn::UseTree::Name(name) => self.0.push(with(&name.ident)),
            syn::UseTree::Rename(rename) => self.0.push(with(&rename.ident)),
            syn::UseTree::Glob(_) => self.0.push(prefix.to_vec()),
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
            self.tree(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Every module that is a file, with the paths that it names.
fn modules(folder: &Path, at: &[String], into: &mut BTreeMap<Module, Vec<Vec<String>>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            modules(&path, &[at, &[stem]].concat(), into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let is_root = ["mod", "lib"].contains(&&*stem);
            let module = if is_root { at.to_vec() } else { [at, &[stem]].concat() };
            let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let mut paths = Paths::default();
            paths.visit_file(&file);
            into.insert(module, paths.0);
        }
    }
}

/// The modules that each module imports from.
fn graph(modules: &BTreeMap<Module, Vec<Vec<String>>>) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let target = |from: &Module, path: &[String]| {
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
        (1..=full.len()).rev().find_map(|n| modules.get_key_value(&full[..n])).map(|(m, _)| m)
    };
    modules
        .iter()
        .map(|(from, paths)| {
            let targets = paths.iter().filter_map(|path| target(from, path));
            (from, targets.filter(|to| *to != from).collect())
        })
        .collect()
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

fn source() -> BTreeMap<Module, Vec<Vec<String>>> {
    let mut all = BTreeMap::new();
    modules(&crate::root().join("src"), &[], &mut all);
    assert!(all.len() > 300, "{} modules only", all.len());
    all
}

#[test]
fn layers_point_one_way() {
    let modules = source();
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

#[test]
fn families_of_kernels_have_no_circles() {
    let modules = source();
    let family = |m: &Module| (m.len() > 1 && m[0] == "kernels").then(|| m[1].clone());
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, targets) in graph(&modules) {
        let Some(own) = family(from) else { continue };
        let others = targets.iter().filter_map(|to| family(to)).filter(|to| *to != own);
        names.entry(own.clone()).or_default().extend(others);
    }
    let next: BTreeMap<&str, BTreeSet<&str>> =
        names.iter().map(|(k, v)| (&**k, v.iter().map(|s| &**s).collect())).collect();
    assert_eq!(circles(&next), Vec::<BTreeSet<&str>>::new());
}

#[test]
fn files_have_no_circles() {
    let modules = source();
    let mut graph = graph(&modules);
    // A module and those below it belong together.
    for (from, targets) in &mut graph {
        targets.retain(|to| !to.starts_with(from) && !from.starts_with(to));
    }
    let found: BTreeSet<BTreeSet<String>> = (circles(&graph).iter())
        .map(|circle| circle.iter().map(|m| m.join("::")).collect())
        .collect();
    let known: BTreeSet<BTreeSet<String>> =
        CIRCLES.iter().map(|c| c.iter().map(|m| (*m).to_owned()).collect()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "new circles of imports: {new:#?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "no longer circles, take them off the list: {gone:#?}");
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
