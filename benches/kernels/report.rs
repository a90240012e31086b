//! The results as Markdown and as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tensorflow_wgpu::device::Device;
use tensorflow_wgpu::report::tuning_of;

use crate::case::Case;
use crate::device::{Peaks, Rates};
use crate::measure::Outcome;

/// Version of the JSON's layout.
const SCHEMA: u32 = 1;

/// The least times that a row can take.
struct Floors {
    /// Seconds.
    floor: f64,
    /// The resource that limits it.
    bound: &'static str,
    /// Time over floor by the wall clock.
    ratio: f64,
    /// The same ratio by CPU time, which is meaningless if the GPU is not a CPU.
    ratio_cpu: f64,
}

/// A row that was run.
pub struct Row {
    /// The case that was run.
    pub case: Case,
    /// Its outcome: None if the adapter does not offer the op, or the error.
    pub outcome: Result<Option<Outcome>, String>,
}

impl Row {
    /// The floors by both clocks, and the row's time as a multiple of them. None for a row without
    /// figures.
    fn floors(&self, peaks: &Peaks) -> Option<Floors> {
        let outcome = self.outcome.as_ref().ok()?.as_ref()?;
        let floor = |rates: &Rates| {
            rates.floor(
                outcome.necessary,
                self.case.flops * self.case.calls as f64,
                self.case.calls,
            )
        };
        let (floor_cpu, _) = floor(&peaks.cpu);
        let (floor, bound) = floor(&peaks.wall);
        Some(Floors {
            floor,
            bound,
            ratio: outcome.timed.seconds / floor,
            ratio_cpu: outcome.timed.cpu / floor_cpu,
        })
    }

    /// The row as JSON.
    pub fn json(&self, peaks: &Peaks) -> Value {
        let mut row = json!({ "family": self.case.family, "name": self.case.name });
        match &self.outcome {
            Err(error) => row["error"] = json!(error),
            Ok(None) => row["skipped"] = json!("the adapter is not offered this op in these types"),
            Ok(Some(o)) => {
                let Floors { floor, bound, ratio, ratio_cpu } =
                    self.floors(peaks).expect("an outcome has a floor");
                let calls = self.case.calls as f64;
                let figures = json!({
                    "ms": o.timed.seconds * 1e3, "first_ms": o.timed.first * 1e3,
                    "floor_ms": floor * 1e3, "bound": bound, "ratio": ratio, "ratio_cpu": ratio_cpu,
                    "gb_s": o.necessary / o.timed.seconds / 1e9,
                    "gflop_s": self.case.flops * calls / o.timed.seconds / 1e9,
                    "necessary_bytes": o.necessary, "flops": self.case.flops * calls,
                        "calls": self.case.calls,
                    "dispatches": o.timed.counted.dispatches, "bytes": o.timed.counted.bytes,
                        "uploads": o.timed.counted.uploads,
                    "downloads": o.timed.counted.downloads, "copies": o.timed.counted.copies,
                    "host_us": o.timed.host * 1e6,
                    "host_us_per_dispatch":
                        o.timed.host * 1e6 / (o.timed.counted.dispatches.max(1)) as f64,
                    "cpu_s": o.timed.cpu, "units": o.timed.units,
                });
                row.as_object_mut()
                    .expect("an object")
                    .extend(figures.as_object().expect("an object").clone());
            }
        }
        row
    }

    /// A line of the table.
    pub fn markdown(&self, peaks: &Peaks) -> String {
        let Case { family, name, .. } = &self.case;
        let o = match &self.outcome {
            Ok(Some(o)) => o,
            other => {
                let why = other
                    .as_ref()
                    .err()
                    .map_or("not offered on this adapter".to_owned(), |e| format!("error: {e}"));
                return format!("| {family} | {name} | {} |\n", why.replace('|', "/"));
            }
        };
        let Floors { floor, bound, ratio, ratio_cpu } =
            self.floors(peaks).expect("an outcome has a floor");
        let rate = match bound {
            "arithmetic" => {
                let flops = self.case.flops * self.case.calls as f64;
                format!("{} GFLOP/s", number(flops / o.timed.seconds / 1e9))
            }
            _ => format!("{} GB/s", number(o.necessary / o.timed.seconds / 1e9)),
        };
        let counted = &o.timed.counted;
        format!(
            "| {family} | {name} | {} | {rate} | {} | {bound} | {} | {} | {} | {} | {} | {} | {} \
             | {} |\n",
            number(o.timed.seconds * 1e3),
            number(floor * 1e3),
            number(ratio),
            number(ratio_cpu),
            counted.dispatches,
            number(counted.bytes as f64 / 1e6),
            number(o.necessary / 1e6),
            number(o.timed.host * 1e6 / counted.dispatches.max(1) as f64),
            number(o.timed.cpu),
            number(o.timed.first * 1e3),
        )
    }
}

/// The adapter, its peaks, the versions and the machine.
pub fn environment(device: &Device, peaks: &Peaks, note: &str) -> Value {
    let mut all = machine(device, note);
    all["kind"] = json!("kernels");
    all["peaks"] = rates(&peaks.wall);
    all["peaks_cpu"] = rates(&peaks.cpu);
    all
}

/// The adapter, the versions and the machine.
pub fn machine(device: &Device, note: &str) -> Value {
    let info = device.info();
    json!({
        "schema": SCHEMA,
        "adapter": {
            "name": info.name, "type": format!("{:?}", info.device_type), "backend": format!("{:?}",
                info.backend),
            "driver": info.driver, "driver_info": info.driver_info,
        },
        "versions": { "tensorflow-wgpu": env!("CARGO_PKG_VERSION"), "wgpu": locked("wgpu"),
            "naga": locked("naga") },
        "optimized": !cfg!(debug_assertions),
        "date": now(),
        "host": { "cpu": processor(), "threads": std::thread::available_parallelism().map_or(0,
            usize::from),
            "load": load(), "os": std::env::consts::OS },
        "command": std::env::args().collect::<Vec<_>>(),
        "note": note,
    })
}

fn rates(rates: &Rates) -> Value {
    json!({ "copy_gb_s": rates.copy / 1e9, "gflop_s": rates.flops / 1e9,
        "dispatch_us": 1e6 / rates.dispatches })
}

/// The whole report. If the device tunes, it has the times of candidates for `tools/tuning`.
pub fn json(device: &Device, environment: &Value, rows: &[Row], peaks: &Peaks) -> Value {
    let mut all = environment.clone();
    let tuning = tuning_of(device);
    if tuning.as_array().is_some_and(|searches| !searches.is_empty()) {
        all["tuning"] = tuning;
    }
    all["rows"] = rows.iter().map(|row| row.json(peaks)).collect();
    all
}

/// The text above the rows.
pub fn head(environment: &Value, peaks: &Peaks) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (adapter, host) = (&environment["adapter"], &environment["host"]);
    format!(
        "{} ({} {}, {}), wgpu {}; {}, {} threads; {}{}\n\nBy the wall clock: copy {}. By CPU \
         seconds: copy {}.\n\n{HEAD}",
        text(&adapter["name"]),
        text(&adapter["driver"]),
        text(&adapter["driver_info"]),
        text(&adapter["backend"]),
        text(&environment["versions"]["wgpu"]),
        text(&host["cpu"]),
        host["threads"],
        text(&environment["date"]),
        if cfg!(debug_assertions) {
            "; built without optimization, so the times of the host mean nothing"
        } else {
            ""
        },
        peaks.wall.text(),
        peaks.cpu.text(),
    )
}

impl Rates {
    fn text(&self) -> String {
        let [copy, flops, dispatch] =
            [self.copy / 1e9, self.flops / 1e9, 1e6 / self.dispatches].map(number);
        format!("{copy} GB/s, multiply-add {flops} GFLOP/s, a dispatch {dispatch} µs")
    }
}

/// The rows that are farthest from their floors, on a software adapter by CPU time; empty if there
/// are not two rows to compare.
pub fn worst(rows: &[Row], peaks: &Peaks, cpu: bool, count: usize) -> String {
    let far = |floors: Floors| if cpu { floors.ratio_cpu } else { floors.ratio };
    let mut far: Vec<_> =
        rows.iter().filter_map(|row| Some((far(row.floors(peaks)?), row))).collect();
    far.sort_by(|a, b| b.0.total_cmp(&a.0));
    if far.len() < 2 || count == 0 {
        return String::new();
    }
    let lines: String = far.iter().take(count).map(|(_, row)| row.markdown(peaks)).collect();
    format!("\nThe farthest from their floors:\n\n{HEAD}{lines}")
}

const HEAD: &str = "| Family | Row | ms | Rate | Floor ms | Bound | Ratio | by CPU s | Dispatches \
                    | MB moved | of | Host µs per dispatch | CPU s | First ms \
                    |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/// Three significant digits.
fn number(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return format!("{value:.0}");
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

/// The version of a crate in the lock file that this was built with.
fn locked(name: &str) -> String {
    let mut lines = include_str!("../../Cargo.lock").lines();
    let found = lines.any(|line| line == format!("name = \"{name}\""));
    let version = lines
        .next()
        .and_then(|line| line.strip_prefix("version = \""))
        .map(|v| v.trim_end_matches('"'));
    version.filter(|_| found).unwrap_or("unknown").to_owned()
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

/// Load averages, if the system reports them.
fn load() -> Vec<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).filter_map(|n| n.parse().ok()).collect()
}

/// The time in UTC, as in 2026-11-22T02:30:00Z.
fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let length = |year: u64| 365 + u64::from(leap(year));
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}
