//! The data for the doctor and the docs: adapters, devices, ops and types, as JSON or Markdown. It
//! only reads; the Python package gives the advice.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::checkup::{self, Verdict};
use crate::device::{
    AdapterReport, Capabilities, Device, MemoryStats, Profile, Selection, Statistics, adapters,
    budget, cache, paging,
};
use crate::device_type::DeviceType;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::contract::choice::Choice;
use crate::kernels::contract::shipped::schedule_name;
use crate::kernels::contract::{self, Timings};
use crate::kernels::registry::{Registration, Registry};
use crate::optimizer::settings::{Settings, VARIABLE};
use crate::settings;

/// The part of the report that only a process with TensorFlow knows.
#[derive(Debug, Clone, Default)]
pub struct TensorFlow {
    /// TensorFlow's version, if it is loaded.
    pub version: Option<String>,
    /// The variable API in use, or the reason why there is none.
    pub variables: Option<Result<String, String>>,
    /// Whether TensorFlow asks for deterministic ops.
    pub deterministic: bool,
    /// The type by which TensorFlow knows the devices, or will know them.
    pub device_type: DeviceType,
}

/// A line for each of the environment's `variables` that is unknown or has an invalid value.
pub fn problems(variables: &[(String, String)]) -> Vec<String> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(n, _)| settings::is_same(n, name));
        found.map(|(_, value)| value.clone())
    };
    let own = settings::problems(variables.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let passes = Settings::parse(&lookup(VARIABLE).unwrap_or_default()).1;
    own.into_iter()
        .chain(passes)
        .chain(cache::problem(&lookup))
        .chain(budget::problem(&lookup))
        .chain(paging::problem(&lookup))
        .collect()
}

/// The whole report for the environment `variables`. Enumerates the adapters and tests each device.
pub fn report(variables: &[(String, String)], tensorflow: &TensorFlow) -> Value {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(n, _)| settings::is_same(n, name));
        found.map(|(_, value)| value.clone())
    };
    let selection = Selection::enumerate(&lookup);
    let environment: BTreeMap<_, _> =
        settings::VARIABLES.iter().filter_map(|v| Some((v.name, lookup(v.name)?))).collect();
    let warnings: Vec<_> = selection.warnings.iter().cloned().chain(problems(variables)).collect();
    let opened: Vec<_> = selection.adapters.iter().map(try_out).collect();
    let capabilities =
        opened.iter().flatten().map(|(d, _)| *d.capabilities()).reduce(Capabilities::common);
    let rows = capabilities.map(Registry::new);
    let rows = rows.as_ref().map_or(&[][..], Registry::rows);
    let caches = cache::directory(&lookup);
    let variables = tensorflow.variables.as_ref().map(|v| match v {
        Ok(api) => json!({ "api": api, "problem": null }),
        Err(problem) => json!({ "api": null, "problem": problem }),
    });
    json!({
        "version": env!("PACKAGE_VERSION"),
        "problem": selection.problem,
        "environment": environment,
        "warnings": warnings,
        "adapters": selection.found.iter().map(|a| adapter(a,
            a.devices.first().and_then(|d| opened.get(*d)), tensorflow.device_type,
            caches.as_deref()))
            .collect::<Vec<_>>(),
        "device_type": tensorflow.device_type.name(),
        "tensorflow": tensorflow.version,
        "variables": variables,
        "deterministic": tensorflow.deterministic,
        "types": kernels_by_type(rows),
        "ops": ops(rows),
    })
}

/// The statistics of each device so far, under TensorFlow's names for the devices.
pub fn statistics(devices: impl IntoIterator<Item = Statistics>, device_type: DeviceType) -> Value {
    let counts =
        |s: Statistics| s.rows().into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
    devices
        .into_iter()
        .enumerate()
        .map(|(i, s)| (device_type.device(i), Value::Object(counts(s))))
        .collect()
}

/// Bytes of tensors in each device's memory, now and at most, under TensorFlow's names for the
/// devices.
pub fn memory(devices: impl IntoIterator<Item = MemoryStats>, device_type: DeviceType) -> Value {
    let figures = |stats: MemoryStats| json!({ "current": stats.in_use, "peak": stats.peak });
    devices
        .into_iter()
        .enumerate()
        .map(|(i, stats)| (device_type.device(i), figures(stats)))
        .collect()
}

/// The times by which contractions were tuned on each device in this process, under TensorFlow's
/// names for the devices.
pub fn tuning<'a>(devices: impl IntoIterator<Item = &'a Device>, device_type: DeviceType) -> Value {
    devices
        .into_iter()
        .enumerate()
        .map(|(i, device)| (device_type.device(i), tuning_of(device)))
        .collect()
}

/// The searches of a device: the class of each contraction, as the shipped table has it, and the
/// nanoseconds of each candidate, that one first which would have run without tuning.
/// `tools/tuning` merges them into the table.
pub fn tuning_of(device: &Device) -> Value {
    let candidate = |(choice, nanoseconds): &(Choice, u64)| {
        json!({ "tile": choice.tile.to_string(), "parts": choice.split_k.max(1),
            "schedule": schedule_name(choice.schedule), "nanoseconds": nanoseconds })
    };
    let own = contract::timings().into_iter().filter(|t| t.device == device.number());
    own.map(|Timings { class, times, .. }| {
        let class: serde_json::Map<_, _> = class
            .columns()
            .into_iter()
            .map(|(name, text)| (name.to_owned(), text.into()))
            .collect();
        json!({ "class": class, "candidates": times.iter().map(candidate).collect::<Vec<_>>() })
    })
    .collect()
}

/// The adapters of devices, under TensorFlow's names for the devices.
pub fn devices<'a>(
    adapters: impl IntoIterator<Item = &'a wgpu::AdapterInfo>,
    device_type: DeviceType,
) -> Value {
    let described = |info: &wgpu::AdapterInfo| {
        json!({
            "name": info.name,
            "vendor": adapters::vendor_name(info.vendor),
            "type": format!("{:?}", info.device_type),
            "backend": format!("{:?}", info.backend),
            "driver": format!("{} {}", info.driver, info.driver_info).trim(),
        })
    };
    adapters
        .into_iter()
        .enumerate()
        .map(|(i, info)| (device_type.device(i), described(info)))
        .collect()
}

/// Opens a device, fills its memory by a shader and reads it back.
fn try_out(adapter: &wgpu::Adapter) -> Result<(std::sync::Arc<Device>, Value)> {
    let device = Device::open(adapter)?;
    let budget = device.memory_budget();
    let memory = json!({ "total": budget.total, "free": budget.free,
        "reported_by_driver": budget.reported });
    let address = device.allocate(256)?;
    device.fill(address, 256, 0xa5a5_a5a5)?;
    let mut bytes = [0; 256];
    device.download(address, &mut bytes)?;
    device.deallocate(address)?;
    if bytes != [0xa5; 256] {
        return Err(Error::Internal(
            "memory that was filled with a pattern holds something else".into(),
        ));
    }
    Ok((device, memory))
}

fn adapter(
    found: &AdapterReport,
    opened: Option<&Result<(std::sync::Arc<Device>, Value)>>,
    device_type: DeviceType,
    caches: Option<&Path>,
) -> Value {
    let info = &found.info;
    let capabilities = Capabilities::from_parts(info, found.features, &found.limits);
    let own = Profile::from_parts(info, capabilities);
    let device = opened.and_then(|o| o.as_ref().ok());
    let known = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    json!({
        "device": found.devices.first().map(|d| device_type.device(d)),
        "devices": found.devices.iter().map(|d| device_type.device(d)).collect::<Vec<_>>(),
        "index": found.index,
        "rejected": found.rejected,
        "problem": opened.and_then(|o| o.as_ref().err()).map(ToString::to_string),
        "name": info.name,
        "vendor": adapters::vendor_name(info.vendor),
        "vendor_id": info.vendor,
        "device_id": info.device,
        "pci_bus_id": known(&info.device_pci_bus_id),
        "profile": device.map_or(own.name, |(device, _)| device.profile().name),
        "type": format!("{:?}", info.device_type),
        "backend": format!("{:?}", info.backend),
        "driver": known(&info.driver),
        "driver_info": known(&info.driver_info),
        "memory": device.map(|(_, memory)| memory),
        "limits": {
            "max_binding": capabilities.max_binding,
            "max_buffer": capabilities.max_buffer,
            "storage_alignment": capabilities.storage_alignment,
            "max_bindings": capabilities.max_bindings,
            "max_invocations": capabilities.max_invocations,
            "workgroup_memory": capabilities.workgroup_memory,
            "immediates": capabilities.immediates,
        },
        "features": {
            "int64": capabilities.int64,
            "float64": capabilities.float64,
            "subgroups": capabilities.subgroups,
            "timestamps": format!("{:?}", capabilities.timestamps).to_lowercase(),
        },
        "matrix_units": device.map(|(device, _)| matrix_units(device)),
        "native_float16": device.map(|(device, _)| device.capabilities().float16),
        "numbers": checkup::known(info, caches).map(|verdict| match verdict {
            Verdict::Right => "right",
            Verdict::Portable => "right with the simplest kernels",
            Verdict::Wrong => "wrong",
        }),
    })
}

/// The matrix sizes that programs may use, and the policy that decides whether they do.
fn matrix_units(device: &Device) -> Value {
    let sizes: Vec<_> = (device.capabilities().matrices.iter())
        .map(|matrices| format!("{} {}", matrices.element, matrices.size))
        .collect();
    let policy = format!("{:?}", device.matrix_units().policy()).to_lowercase();
    json!({ "sizes": sizes, "policy": policy })
}

/// The ops in alphabetical order, each with its registrations.
fn ops(rows: &[Registration]) -> Value {
    by_op(rows)
        .into_iter()
        .map(|(op, rows)| {
            let kernels: Vec<_> = rows
                .iter()
                .map(|r| {
                    r.types.iter().map(|(attr, t)| (*attr, t.name())).collect::<BTreeMap<_, _>>()
                })
                .collect();
            json!({ "op": op, "family": rows[0].family, "host_memory": rows[0].host_memory,
                "note": notes(&rows), "types": kernels })
        })
        .collect()
}

/// The number of ops that take each type.
fn kernels_by_type(rows: &[Registration]) -> BTreeMap<&'static str, usize> {
    DType::ALL
        .into_iter()
        .map(|t| {
            (t.name(), by_op(rows).values().filter(|rows| main_types(rows).contains(&t)).count())
        })
        .filter(|(_, ops)| *ops > 0)
        .collect()
}

/// The different notes of an op's kernels.
fn notes(rows: &[&Registration]) -> String {
    let mut notes: Vec<_> = rows.iter().map(|r| r.note).filter(|n| !n.is_empty()).collect();
    notes.sort_unstable();
    notes.dedup();
    notes.join("; ")
}

fn by_op(rows: &[Registration]) -> BTreeMap<&'static str, Vec<&Registration>> {
    let mut by_op = BTreeMap::<_, Vec<_>>::new();
    // Ops that only the graph optimizer emits are not listed; docs/OPTIMIZER.md describes them.
    for row in rows.iter().filter(|r| !r.op.starts_with("_Wgpu")) {
        by_op.entry(row.op).or_default().push(row);
    }
    by_op
}

/// The types of an op's data. They come from its first type attribute; the others are index and
/// output types.
fn main_types(rows: &[&Registration]) -> Vec<DType> {
    let mut types: Vec<_> = rows.iter().filter_map(|r| r.types.first()).map(|(_, t)| *t).collect();
    types.sort_unstable();
    types.dedup();
    types
}

/// The text above the table of ops.
const OPS_HEAD: &str = "\
# Ops

{count} ops have kernels for WGPU. TensorFlow adds those that it offers every device: constants,
reshapes, variable handles, control flow, function calls. Together they are all but
[seven](DECISIONS.md#ops-that-are-not-there) of the 579 that TensorFlow 2.21 has on its own GPUs.
All other ops run on the CPU. `make docs` writes this page from the registry.

float64 and complex128 need an adapter with 64-bit floats in shaders; int64 and uint64 run on every
adapter. `python -m tensorflow_wgpu --ops` lists what yours offers.

Every op with every type is run against TensorFlow's CPU kernel by the case in `tests/python/sweep/`
that the last column names. Arguments in host memory are those that TensorFlow's own GPU kernels
have there, but for `StatelessRandomGetKeyCounter`, which makes its keys on the device. Notes say
what runs on the host, or by a kernel of TensorFlow's own.

| Op | Types | In host memory | Notes | Family | Sweep |
|---|---|---|---|---|---|
";

/// The table of supported ops, for an adapter with every feature. `sweep` is the folder
/// `tests/python/sweep`. Its files hold a case for each op, and the table names them. Fails if the
/// folder cannot be read.
pub fn ops_table(sweep: &Path) -> std::io::Result<String> {
    let mut cases = BTreeMap::new();
    for entry in sweep.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "py") {
            cases.insert(
                path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                std::fs::read_to_string(path)?,
            );
        }
    }
    let registry = Registry::new(Capabilities::FULL);
    let by_op = by_op(registry.rows());
    let mut table = OPS_HEAD.replace("{count}", &by_op.len().to_string());
    for (op, rows) in by_op {
        let mut attributes = BTreeMap::<_, Vec<DType>>::new();
        for (attr, dtype) in rows.iter().flat_map(|r| &r.types) {
            let types = attributes.entry(*attr).or_default();
            if !types.contains(dtype) {
                types.push(*dtype);
            }
        }
        let types: Vec<String> = attributes
            .iter()
            .map(|(attr, types)| {
                format!("{attr}: {}", types.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "))
            })
            .collect();
        let host = rows[0].host_memory.join(", ");
        let quoted = format!("\"{op}\"");
        // Some files generate the names of their ops; these files are named after the family.
        let case = cases.iter().find(|(_, text)| text.contains(&quoted)).map(|(name, _)| name);
        let case = case
            .or_else(|| cases.get_key_value(rows[0].family).map(|(name, _)| name))
            .map_or("", String::as_str);
        // A write to a String cannot fail.
        let _ = writeln!(
            table,
            "| {op} | {} | {host} | {} | {} | {case} |",
            types.join("; "),
            notes(&rows),
            rows[0].family
        );
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_device_is_a_problem_and_not_a_failure() {
        let hidden = [("TF_WGPU_VISIBLE_DEVICES".to_owned(), String::new())];
        let report = report(&hidden, &TensorFlow::default());
        assert_eq!(report["warnings"], json!([]));
        assert!(report["problem"].as_str().unwrap().contains("hides every device"));
        assert_eq!(report["environment"], json!({ "TF_WGPU_VISIBLE_DEVICES": "" }));
        assert_eq!(report["ops"], json!([]));
        assert_eq!(report["tensorflow"], Value::Null);
    }

    #[test]
    fn statistics_go_by_device_and_name() {
        let second = Statistics { dispatches: 3, bytes: 1 << 40, ..Statistics::default() };
        let found = statistics([Statistics::default(), second], DeviceType::Wgpu);
        assert_eq!(found["WGPU:0"]["dispatches"], json!(0));
        assert_eq!(found["WGPU:1"]["dispatches"], json!(3));
        assert_eq!(found["WGPU:1"]["bytes"], json!(1_u64 << 40));
        assert_eq!(found.as_object().unwrap().len(), 2);
    }

    #[test]
    fn variables_are_an_api_or_a_problem() {
        let hidden = [("TF_WGPU_VISIBLE_DEVICES".to_owned(), String::new())];
        let with = |variables| TensorFlow {
            version: Some("2.21.0".into()),
            variables: Some(variables),
            ..TensorFlow::default()
        };
        let official = report(&hidden, &with(Ok("official".into())));
        assert_eq!(official["variables"], json!({ "api": "official", "problem": null }));
        let none = report(&hidden, &with(Err("none fits".into())));
        assert_eq!(none["variables"], json!({ "api": null, "problem": "none fits" }));
    }
}
