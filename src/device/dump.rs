//! Writes shaders to the folder of `TF_WGPU_DUMP`: the WGSL of each pipeline and the backend's
//! translation, before the driver gets them, and a table of the outcomes.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::program::Key;
use super::spirv;
use crate::dump::{Counter, Folder, file_name};
use crate::error::{Error, Result};

const COLUMNS: &[&str] = &["number", "device", "ms", "outcome", "key", "label"];

/// The dump of one device's shaders. Their numbers are counted for the whole process.
#[derive(Debug)]
pub(super) struct ShaderDump {
    folder: Arc<Folder>,
    backend: wgpu::Backend,
    are_buffers_guarded: bool,
    device: String,
}

/// A shader in the form that wgpu gets.
pub(super) enum Text<'a> {
    Wgsl(&'a str),
    Module(&'a naga::Module),
    Spirv(&'a [u32]),
}

impl ShaderDump {
    /// Starts a dump, and describes the device in a separate file.
    pub fn begin(
        folder: Arc<Folder>,
        info: &wgpu::AdapterInfo,
        profile: &impl Debug,
        are_buffers_guarded: bool,
    ) -> Self {
        static DEVICES: Counter = Counter::new();
        let device = DEVICES.next();
        folder.write(&format!("device_{device}.txt"), format!("{info:#?}\n{profile:#?}\n"));
        Self { folder, backend: info.backend, are_buffers_guarded, device }
    }

    /// Writes the texts of a shader that is about to be compiled. Returns its number.
    pub fn write(
        &self,
        label: &str,
        wgsl: &str,
        text: std::result::Result<Text<'_>, &Error>,
    ) -> String {
        static SHADERS: Counter = Counter::new();
        let number = SHADERS.next();
        let path = format!("shaders/{number}_{}", file_name(label));
        self.folder.write(&format!("{path}.wgsl"), wgsl);
        let translated = |text| translated(self.backend, self.are_buffers_guarded, &text);
        match text.map_err(Clone::clone).and_then(translated) {
            Ok((extension, text)) => self.folder.write(&format!("{path}.{extension}"), text),
            Err(e) => self.folder.write(&format!("{path}.error.txt"), e.to_string()),
        }
        number
    }

    /// Adds a row about a shader: compiled, or the error.
    pub fn end(&self, number: &str, key: &Key, label: &str, took: Duration, error: Option<&Error>) {
        let outcome = error.map_or_else(|| "compiled".to_owned(), ToString::to_string);
        let ms = format!("{:.3}", took.as_secs_f64() * 1e3);
        self.folder.append(
            "shaders.tsv",
            COLUMNS,
            &[&number, &self.device, &ms, &outcome, key, &label],
        );
    }
}

/// The text in the backend's language, and the extension of its file. Vulkan's text is the driver's
/// input; the others differ from it in the numbers of bindings.
fn translated(
    backend: wgpu::Backend,
    are_buffers_guarded: bool,
    text: &Text<'_>,
) -> Result<(&'static str, String)> {
    let parsed;
    let module = match *text {
        Text::Spirv(words) => return disassembled(words),
        Text::Module(module) => module,
        Text::Wgsl(wgsl) => {
            parsed = naga::front::wgsl::parse_str(wgsl)
                .map_err(|e| Error::Internal(e.emit_to_string(wgsl)))?;
            &parsed
        }
    };
    match backend {
        #[cfg(any(test, target_vendor = "apple"))]
        wgpu::Backend::Metal => metal(module),
        #[cfg(any(test, windows))]
        wgpu::Backend::Dx12 => hlsl(module),
        _ => disassembled(&spirv::of(module, are_buffers_guarded)?),
    }
}

fn disassembled(words: &[u32]) -> Result<(&'static str, String)> {
    use rspirv::binary::Disassemble;
    let module = rspirv::dr::load_words(words).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(("spvasm", module.disassemble()))
}

#[cfg(any(test, target_vendor = "apple"))]
fn metal(module: &naga::Module) -> Result<(&'static str, String)> {
    use naga::back::msl;
    let options = msl::Options { lang_version: (2, 4), ..Default::default() };
    let entry = msl::PipelineOptions {
        entry_point: Some((naga::ShaderStage::Compute, "main".to_owned())),
        ..Default::default()
    };
    let written = msl::write_string(module, &spirv::validated(module)?, &options, &entry);
    written.map(|(text, _)| ("metal", text)).map_err(|e| Error::Internal(e.to_string()))
}

#[cfg(any(test, windows))]
fn hlsl(module: &naga::Module) -> Result<(&'static str, String)> {
    use naga::back::hlsl;
    let target = |space| Some(hlsl::BindTarget { space, ..Default::default() });
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_0,
        immediates_target: target(1),
        special_constants_binding: target(2),
        ..Default::default()
    };
    let entry = hlsl::PipelineOptions {
        entry_point: Some((naga::ShaderStage::Compute, "main".to_owned())),
    };
    let mut text = String::new();
    let written = hlsl::Writer::new(&mut text, &options, &entry).write(
        module,
        &spirv::validated(module)?,
        None,
    );
    written.map_err(|e| Error::Internal(e.to_string()))?;
    Ok(("hlsl", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WGSL: &str = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n\
                        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) at: \
                        vec3<u32>) { x[at.x] = exp(x[at.x]); }";

    #[test]
    fn each_backend_has_its_language() {
        let module = naga::front::wgsl::parse_str(WGSL).unwrap();
        let words = spirv::of(&module, true).unwrap();
        for (backend, text, extension, sign) in [
            (wgpu::Backend::Vulkan, Text::Wgsl(WGSL), "spvasm", "OpEntryPoint GLCompute"),
            (wgpu::Backend::Vulkan, Text::Module(&module), "spvasm", "OpStore"),
            (wgpu::Backend::Vulkan, Text::Spirv(&words), "spvasm", "LocalSize 64 1 1"),
            (wgpu::Backend::Metal, Text::Wgsl(WGSL), "metal", "metal::exp("),
            (wgpu::Backend::Dx12, Text::Module(&module), "hlsl", "[numthreads(64, 1, 1)]"),
        ] {
            let (found, text) = translated(backend, true, &text).unwrap();
            assert_eq!(found, extension);
            assert!(text.contains(sign), "{text}");
        }
    }

    #[test]
    fn a_shader_that_makes_no_sense_is_an_error() {
        assert!(translated(wgpu::Backend::Vulkan, true, &Text::Wgsl("fn")).is_err());
        assert!(translated(wgpu::Backend::Vulkan, true, &Text::Spirv(&[1, 2])).is_err());
    }
}
