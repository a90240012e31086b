//! A session as JSON, for `tensorflow_wgpu.profile`: tables of names and rows of numbers, which
//! stay small even with a million events.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Traced, name};
use crate::device::trace::{DeviceEvent, HostEvent, HostWork, Thread, Trace, Work};
use crate::device_type::DeviceType;
use crate::tensor::shape_text;

/// The data of the sessions, with a member for each device. It has TensorFlow's name for the
/// device, such as `WGPU:0`.
///
/// - `device`: rows `[name, origin, shader, correlation, begin, end, bytes, flops, timed,
///   submission]`, of which `name`, `origin` and `shader` are indices, −1 for none;
/// - `host`: rows `[kind, thread, begin, end, correlation, detail]`, with indices into `kinds` and
///   `threads`; the detail is a number of bytes, the index of an origin or of a shader;
/// - `memory`: rows `[at, bytes in use]`;
/// - `tensors`: rows `[bytes, type and shape, origin]`, the largest first.
///
/// Times are nanoseconds since `began`, which is Unix time.
pub fn json(devices: &[Traced], device_type: DeviceType) -> Value {
    let members = devices
        .iter()
        .map(|traced| (device_type.device(traced.ordinal), device(&traced.adapter, &traced.trace)));
    Value::Object(members.collect())
}

/// Numbers for texts, from 0.
#[derive(Default)]
struct Table {
    numbers: HashMap<String, usize>,
    texts: Vec<String>,
}

impl Table {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len();
        self.numbers.insert(text.to_owned(), number);
        self.texts.push(text.to_owned());
        number
    }
}

/// Numbers for shared values, from 0.
struct Shared<T> {
    numbers: HashMap<*const T, usize>,
    values: Vec<Arc<T>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }
}

impl<T> Shared<T> {
    fn number(&mut self, value: &Arc<T>) -> usize {
        let next = self.values.len();
        let number = *self.numbers.entry(Arc::as_ptr(value)).or_insert(next);
        if number == next {
            self.values.push(value.clone());
        }
        number
    }
}

#[derive(Default)]
struct Tables {
    names: Table,
    shaders: Table,
    origins: Shared<crate::device::trace::Origin>,
    threads: Shared<Thread>,
}

/// The kinds of host events, in the order of their numbers.
const KINDS: [&str; 7] =
    ["op", "submit", "wait for GPU", "wait for device", "compile", "stage", "read back"];

fn device(adapter: &str, trace: &Trace) -> Value {
    let mut tables = Tables::default();
    let events: Vec<_> = trace.device.iter().map(|event| tables.device(event)).collect();
    let host: Vec<_> = trace.host.iter().map(|event| tables.host(event)).collect();
    let memory: Vec<_> = trace.memory.iter().map(|m| json!([m.at, m.in_use])).collect();
    let tensors: Vec<_> = trace
        .tensors
        .iter()
        .map(|t| {
            let what = format!("{}{}", t.dtype, shape_text(&t.dims));
            json!([t.bytes, what, tables.origins.number(&t.origin)])
        })
        .collect();
    let origins: Vec<_> = tables
        .origins
        .values
        .iter()
        .map(|o| json!({ "op": o.op, "node": o.node, "holds": o.holds }))
        .collect();
    let threads: Vec<_> =
        tables.threads.values.iter().map(|t| json!({ "name": t.name, "id": t.id })).collect();
    json!({
        "adapter": adapter,
        "began": trace.began,
        "duration": trace.duration,
        "timestamps": format!("{:?}", trace.timestamps).to_lowercase(),
        "clock_error": trace.clock_error,
        "dropped": trace.dropped,
        "names": tables.names.texts,
        "shaders": tables.shaders.texts,
        "origins": origins,
        "threads": threads,
        "kinds": KINDS,
        "device": events,
        "host": host,
        "memory": memory,
        "tensors": tensors,
    })
}

impl Tables {
    fn device(&mut self, event: &DeviceEvent) -> Value {
        let origin = event.origin.as_ref().map_or(-1, |o| self.origins.number(o) as i64);
        let (shader, flops) = match &event.work {
            Work::Dispatch { shader, flops, .. } => {
                (self.shaders.number(&shader.label) as i64, *flops)
            }
            Work::Upload | Work::Download => (-1, 0),
        };
        json!([
            self.names.number(&name(event)),
            origin,
            shader,
            event.correlation,
            event.begin,
            event.end,
            event.bytes,
            flops,
            u8::from(event.is_timed),
            event.submission,
        ])
    }

    fn host(&mut self, event: &HostEvent) -> Value {
        let (kind, detail) = match &event.work {
            HostWork::Op(origin) => (0, self.origins.number(origin) as u64),
            HostWork::Submit => (1, 0),
            HostWork::WaitForGpu => (2, 0),
            HostWork::WaitForDevice => (3, 0),
            HostWork::Compile(label) => (4, self.shaders.number(label) as u64),
            HostWork::Stage(bytes) => (5, *bytes),
            HostWork::ReadBack(bytes) => (6, *bytes),
        };
        let thread = self.threads.number(&event.thread);
        json!([kind, thread, event.begin, event.end, event.correlation, detail])
    }
}
