//! Whether an adapter converts float32 to float16 as IEEE 754 wants: to nearest even, with
//! subnormal results, and with infinity for what is too large.
//!
//! Vulkan leaves the rounding to the driver, and WGSL cannot ask for one. Conversions by integer
//! arithmetic take fifteen instructions, and in mixed precision every step of a fused kernel has
//! one. So a device whose adapter has 16-bit floats tries its conversions once, when it is opened.

use std::time::Duration;

use half::f16;

use super::Policy;
use super::checked::checked;
use super::memory::storage_buffer;
use crate::error::{Error, Result};
use crate::shader::library::{self, Forms};
use crate::sys::guard::caught;
use crate::sys::trusted_shader;

/// The variable with the policy: `on`, `off`, or nothing for the probe's answer.
pub(super) const VARIABLE: &str = "TF_WGPU_NATIVE_FLOAT16";

/// The longest that the probe may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the conversions of a device that has 16-bit floats are used.
pub(super) fn is_used(
    policy: Policy,
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    adapter: &str,
) -> bool {
    match policy {
        Policy::Off => false,
        Policy::Forced => true,
        Policy::Probed => match caught("a probe", || wrong(device, queue)) {
            Ok(None) => true,
            Ok(Some(wrong)) => {
                log::info!("{adapter}: its conversions to float16 are not used: {wrong}");
                false
            }
            Err(e) => {
                log::info!("{adapter}: its conversions to float16 are not used: {e}");
                false
            }
        },
    }
}

/// A description of the first conversion that is wrong; None if all are right. Blocks until the
/// device has computed them.
fn wrong(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Option<String>> {
    let values = values();
    let found = converted(device, queue, &values)?;
    let all = values.iter().zip(found);
    let mut wrong = all.filter(|(value, found)| !is_right(**value, *found));
    Ok(wrong.next().map(|(value, found)| {
        let rounded = f32::from_bits(found[1]);
        format!("{value:e} becomes {:#010x}, and {rounded:e} in a fused kernel", found[0])
    }))
}

/// Whether the words of `value` and its negation, and the rounded value, are right.
fn is_right(value: f32, [words, rounded]: [u32; 2]) -> bool {
    let want = f16::from_f32(value);
    let rounded = f32::from_bits(rounded);
    let [low, high] = [words as u16, (words >> 16) as u16].map(f16::from_bits);
    if value.is_nan() {
        return low.is_nan() && high.is_nan() && rounded.is_nan();
    }
    low.to_bits() == want.to_bits()
        && high.to_bits() == (-want).to_bits()
        && rounded.to_bits() == want.to_f32().to_bits()
}

/// Each finite float16 that is not negative, the float32 in the middle between it and the next one,
/// and the two neighbours of that; then numbers beyond float16.
fn values() -> Vec<f32> {
    let largest = f16::MAX.to_bits();
    let next = |bits: u16| if bits < largest { f16::from_bits(bits + 1).to_f32() } else { 65536.0 };
    let around = (0..=largest).flat_map(|bits| {
        let value = f16::from_bits(bits).to_f32();
        let middle = f32::midpoint(value, next(bits));
        [value, middle, middle.next_down(), middle.next_up()]
    });
    let beyond = [f32::from_bits(1), 1e-40, 1e-30, 65536.0, 1e6, f32::MAX, f32::INFINITY, f32::NAN];
    around.chain(beyond).collect()
}

/// For each value the words of it and its negation, and the bits of its rounded value.
fn converted(device: &wgpu::Device, queue: &wgpu::Queue, values: &[f32]) -> Result<Vec<[u32; 2]>> {
    const WORKGROUP: u32 = 64;
    let forms = Forms { native_float16: true, ..Forms::default() };
    // Where two ways to the same word differ, the pair gets a word that is wrong for any value.
    let main = format!(
        "@group(0) @binding(0) var<storage, read_write> pairs: array<vec2<u32>>;\n\n\
         @compute @workgroup_size({WORKGROUP})\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n    \
         if id.x < arrayLength(&pairs) {{\n        \
         let v = bitcast<f32>(pairs[id.x].x);\n        \
         let words = f16_words(vec4(v, -v, v, -v));\n        \
         let words_agree = words.x == words.y && (words.x & 0xffffu) == f16_bits(v);\n        \
         pairs[id.x] = vec2(select(0xdeadu, words.x, words_agree), \
         bitcast<u32>(round_f16(v)));\n    }}\n}}\n"
    );
    let text = format!("enable f16;\n{}\n{main}", library::needed(&main, forms));
    let label = "a probe of conversions to float16";
    let pairs: Vec<[u32; 2]> = values.iter().map(|value| [value.to_bits(), 0]).collect();
    let size = size_of_val(&pairs[..]) as u64;
    let words = storage_buffer(device, label, size)?;
    let (host, submitted) = checked(device, label, || {
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let module = trusted_shader::create(device, label, source, false);
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(label),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: words.as_entire_binding() }],
        });
        let host = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        queue.write_buffer(&words, 0, bytemuck::cast_slice(&pairs));
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups((pairs.len() as u32).div_ceil(WORKGROUP), 1, 1);
        drop(pass);
        encoder.copy_buffer_to_buffer(&words, 0, &host, 0, size);
        let submitted = queue.submit([encoder.finish()]);
        host.map_async(wgpu::MapMode::Read, .., |_| {});
        (host, submitted)
    })?;
    let wait = wgpu::PollType::Wait { submission_index: Some(submitted), timeout: Some(PATIENCE) };
    let failed = |e: &dyn std::fmt::Display| Error::Unavailable(format!("{label}: {e}"));
    device.poll(wait).map_err(|e| failed(&e))?;
    let view = host.get_mapped_range(..).map_err(|e| failed(&e))?;
    Ok(bytemuck::cast_slice(&view).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_flushed_subnormals_and_a_largest_number_for_infinity_are_wrong() {
        let words = |half: f16| u32::from(half.to_bits()) | u32::from((-half).to_bits()) << 16;
        let both = |half: f16| [words(half), half.to_f32().to_bits()];
        for value in values() {
            assert!(is_right(value, both(f16::from_f32(value))), "{value:e}");
        }
        let middle = f32::midpoint(1.0, f16::from_bits(f16::ONE.to_bits() + 1).to_f32());
        for (value, found) in [
            (middle.next_up(), f16::ONE),
            (f16::from_bits(3).to_f32(), f16::ZERO),
            (65520.0, f16::MAX),
            (f32::NAN, f16::INFINITY),
        ] {
            assert!(values().iter().any(|v| v.to_bits() == value.to_bits()), "{value:e}");
            assert!(!is_right(value, both(found)), "{value:e}");
        }
        assert!(!is_right(1.0, [words(f16::ONE), middle.to_bits()]), "it is not rounded");
    }
}
