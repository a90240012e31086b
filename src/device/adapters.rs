//! Chooses the adapters that become WGPU:0, WGPU:1, …: enumeration, order, and the environment
//! variables that change them.

use crate::error::{Error, Result};
use crate::sys::guard::caught_as;

/// An adapter that was found, and the reason if it is not used.
#[derive(Debug, Clone)]
pub struct AdapterReport {
    /// Name, vendor, driver and backend.
    pub info: wgpu::AdapterInfo,
    /// Its features.
    pub features: wgpu::Features,
    /// Its limits.
    pub limits: wgpu::Limits,
    /// Position among usable adapters, the index that `TF_WGPU_VISIBLE_DEVICES` takes.
    pub index: Option<usize>,
    /// The devices that the adapter became: 0 for WGPU:0. Empty if it cannot serve or the
    /// environment hides it. Several if `TF_WGPU_VISIBLE_DEVICES` names it several times.
    pub devices: Vec<usize>,
    /// The reason if it cannot serve.
    pub rejected: Option<String>,
}

/// The outcome of enumeration.
#[derive(Debug, Default)]
pub struct Selection {
    /// The adapters that become WGPU:0, WGPU:1, …, in this order.
    pub adapters: Vec<wgpu::Adapter>,
    /// Every adapter that was found.
    pub found: Vec<AdapterReport>,
    /// Whether the devices are software adapters because the machine has no other adapter, though
    /// no variable asked for them.
    pub is_last_resort: bool,
    /// The reason if there is no device, in one line.
    pub problem: Option<String>,
    /// Whether there is no device because `TF_WGPU_VISIBLE_DEVICES=-1` asks for that. This is not
    /// reported as a problem.
    pub is_switched_off: bool,
    /// Other problems, one line each: with the variables, or with drivers that are left out.
    pub warnings: Vec<String>,
}

impl Selection {
    /// Enumerates with wgpu's own variables (`WGPU_BACKEND`, `WGPU_ADAPTER_NAME`,
    /// `WGPU_POWER_PREF`) and `TF_WGPU_VISIBLE_DEVICES` as `lookup` gives them. Never fails: after
    /// an error there is a `problem` and no adapter.
    pub fn enumerate(lookup: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut selection = Self::default();
        let filled = caught_as(
            || selection.fill(lookup),
            |panic| {
                Error::Unavailable(format!(
                    "no usable GPU: a driver failed while it was asked what it has: {panic}"
                ))
            },
        );
        if let Err(e) = filled {
            selection.adapters.clear();
            selection.is_last_resort = false;
            selection.found.iter_mut().for_each(|f| f.devices.clear());
            selection.problem = Some(e.to_string());
        }
        selection
    }

    /// The number of devices that share the adapter of device `device`, and so its memory.
    pub fn sharers(&self, device: usize) -> u32 {
        let found = self.found.iter().find(|f| f.devices.contains(&device));
        found.map_or(1, |f| f.devices.len() as u32)
    }

    fn fill(&mut self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<()> {
        let asked = lookup("TF_WGPU_VISIBLE_DEVICES");
        self.is_switched_off = asked.as_ref().is_some_and(|v| v.trim() == "-1");
        let visible = asked.map(|v| visible_devices(&v)).transpose()?;
        if visible.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::FailedPrecondition(
                "TF_WGPU_VISIBLE_DEVICES is empty or -1, which hides every device; unset it to \
                 use all"
                    .into(),
            ));
        }
        let (backends, warning) = backends(lookup("WGPU_BACKEND").as_deref(), of_system())?;
        self.warnings.extend(warning);
        let low_power = low_power(lookup("WGPU_POWER_PREF").as_deref())?;
        crate::sys::address_range::check_room()?;
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle().with_env();
        descriptor.backends = backends;
        // With this flag wgpu makes a pipeline of its own while it opens a device. A driver that
        // refuses that pipeline would have no device. Nothing here dispatches indirectly.
        descriptor.flags.remove(wgpu::InstanceFlags::VALIDATION_INDIRECT_CALL);
        #[cfg(has_examination)]
        if backends.contains(wgpu::Backends::VULKAN) {
            let left_out = super::left_out::apply(super::cache::directory(lookup));
            if left_out.everything {
                descriptor.backends -= wgpu::Backends::VULKAN;
            }
            self.warnings.extend(left_out.lines.iter().cloned());
        }
        #[cfg(windows)]
        {
            let crashing = super::crashing_backends::of(
                backends & of_system(),
                super::cache::directory(lookup),
            );
            descriptor.backends -= crashing.backends();
            self.warnings.extend(crashing.lines());
        }
        if descriptor.backends.contains(wgpu::Backends::VULKAN) {
            crate::sys::vulkan_driver::preload()?;
        }
        let mut adapters = crate::sys::instance::adapters(descriptor);
        adapters.sort_by_key(|a| rank(&a.get_info(), low_power));
        let name = lookup("WGPU_ADAPTER_NAME").map(|n| n.to_lowercase()).filter(|n| !n.is_empty());
        let mut usable = Vec::new();
        for adapter in adapters {
            let info = adapter.get_info();
            let rejected = unusable(&adapter)
                .or_else(|| {
                    usable.iter().any(|u: &wgpu::Adapter| same_gpu(&u.get_info(), &info)).then(
                        || {
                            "the same GPU through another backend; choose with WGPU_BACKEND"
                                .to_owned()
                        },
                    )
                })
                .or_else(|| match &name {
                    Some(n) if !info.name.to_lowercase().contains(n) => {
                        Some(format!("WGPU_ADAPTER_NAME={n} does not match"))
                    }
                    _ => None,
                });
            self.found.push(AdapterReport {
                features: adapter.features(),
                limits: adapter.limits(),
                index: rejected.is_none().then_some(usable.len()),
                devices: Vec::new(),
                rejected: rejected.clone(),
                info,
            });
            if rejected.is_none() {
                usable.push(adapter);
            }
        }
        if usable.is_empty() {
            return Err(Error::Unavailable(self.none_usable()));
        }
        let types: Vec<_> = usable.iter().map(|a| a.get_info().device_type).collect();
        self.is_last_resort =
            visible.is_none() && name.is_none() && types.iter().all(|ty| is_software(*ty));
        let chosen = visible.unwrap_or_else(|| by_default(&types, name.is_some()));
        for (device, i) in chosen.into_iter().enumerate() {
            let adapter = usable.get(i).ok_or_else(|| {
                let there = match usable.len() {
                    1 => "there is only one, with index 0".to_owned(),
                    n => format!("there are only {n}, with indices 0 to {}", n - 1),
                };
                Error::InvalidArgument(format!(
                    "TF_WGPU_VISIBLE_DEVICES names device {i}, but {there}"
                ))
            })?;
            self.adapters.push(adapter.clone());
            if let Some(found) = self.found.iter_mut().find(|f| f.index == Some(i)) {
                found.devices.push(device);
            }
        }
        Ok(())
    }

    /// Why there is no device. Lines about what is left out are not told twice.
    fn none_usable(&mut self) -> String {
        let mut reasons: Vec<String> = self
            .found
            .iter()
            .map(|r| {
                format!(
                    "{} ({}): {}",
                    r.info.name,
                    r.info.backend,
                    r.rejected.as_deref().unwrap_or("unknown")
                )
            })
            .collect();
        if reasons.is_empty() {
            reasons.append(&mut self.warnings);
        }
        if reasons.is_empty() {
            let advice = if cfg!(windows) {
                "install your GPU's driver; DX12 also needs Microsoft's dxcompiler.dll, which the \
                 wheel holds and a build from the sources does not (docs/INSTALL.md)"
            } else {
                "on Debian or Ubuntu install mesa-vulkan-drivers or your GPU's driver"
            };
            reasons.push(format!("no Vulkan, Metal or DX12 driver was found; {advice}"));
        }
        format!("no usable GPU: {}", reasons.join("; "))
    }
}

/// The vendor with the number that a driver reports: a PCI id, or one of Khronos's own.
pub fn vendor_name(id: u32) -> String {
    const VENDORS: &[(u32, &str)] = &[
        (0x1002, "AMD"),
        (0x1010, "Imagination Technologies"),
        (0x106b, "Apple"),
        (0x10de, "NVIDIA"),
        (0x13b5, "Arm"),
        (0x1414, "Microsoft"),
        (0x144d, "Samsung"),
        (0x14e4, "Broadcom"),
        (0x1ae0, "Google"),
        (0x5143, "Qualcomm"),
        (0x8086, "Intel"),
        (0x10005, "Mesa"),
    ];
    VENDORS
        .iter()
        .find(|(v, _)| *v == id)
        .map_or_else(|| format!("vendor {id:#06x}"), |(_, name)| (*name).to_owned())
}

/// Parses `"0,2"` into indices. A repeated index makes several devices on one adapter. `-1` ends
/// the list, as in `CUDA_VISIBLE_DEVICES`: Windows has no empty variables. Anything else is an
/// error.
fn visible_devices(value: &str) -> Result<Vec<usize>> {
    let mut indices = Vec::new();
    if value.trim().is_empty() {
        return Ok(indices);
    }
    for part in value.split(',').map(str::trim).take_while(|part| *part != "-1") {
        let index: usize = part.parse().map_err(|_| {
            Error::InvalidArgument(format!(
                "TF_WGPU_VISIBLE_DEVICES={value:?}: {part:?} is not a device index; give a list \
                 such as 0,1, or -1 for none"
            ))
        })?;
        indices.push(index);
    }
    Ok(indices)
}

/// The backends that the library is built with for this system.
fn of_system() -> wgpu::Backends {
    SERVING & wgpu::Instance::enabled_backend_features()
}

/// The backends that can serve: their compute shaders have all features that the kernels need.
const SERVING: wgpu::Backends =
    wgpu::Backends::VULKAN.union(wgpu::Backends::METAL).union(wgpu::Backends::DX12);

/// The names of backends, as `WGPU_BACKEND` takes them.
const BACKENDS: [(&str, &str, wgpu::Backends); 3] = [
    ("vulkan", "vk", wgpu::Backends::VULKAN),
    ("metal", "mtl", wgpu::Backends::METAL),
    ("dx12", "d3d12", wgpu::Backends::DX12),
];

/// The backends of `WGPU_BACKEND`, a comma-separated list; by default [`SERVING`]. The line names
/// listed backends that are not in `system`, the backends of this system.
///
/// # Errors
/// The list has an unknown name, or no backend of this system.
fn backends(
    value: Option<&str>,
    system: wgpu::Backends,
) -> Result<(wgpu::Backends, Option<String>)> {
    let Some(value) = value.filter(|v| !v.trim().is_empty()) else { return Ok((SERVING, None)) };
    let mut chosen = wgpu::Backends::empty();
    let mut lacking = Vec::new();
    for part in value.split(',') {
        let part = part.trim();
        let lower = part.to_lowercase();
        let Some((_, _, backend)) = BACKENDS.iter().find(|b| b.0 == lower || b.1 == lower) else {
            return Err(Error::InvalidArgument(format!(
                "WGPU_BACKEND={value}: {part} is not a graphics API; the values are vulkan, metal \
                 and dx12"
            )));
        };
        if !system.contains(*backend) {
            lacking.push(part);
        }
        chosen |= *backend;
    }
    if lacking.is_empty() {
        return Ok((chosen, None));
    }
    let has: Vec<_> =
        BACKENDS.iter().filter(|b| system.contains(b.2)).map(|(name, ..)| *name).collect();
    let line = format!(
        "WGPU_BACKEND={value:?}: this system has no {}, only {}",
        lacking.join(" and no "),
        has.join(" and ")
    );
    if chosen.intersects(system) {
        Ok((chosen & system, Some(line)))
    } else {
        Err(Error::InvalidArgument(line))
    }
}

/// Whether `WGPU_POWER_PREF` asks for the low-power GPU first.
fn low_power(value: Option<&str>) -> Result<bool> {
    match value.map(|v| v.trim().to_lowercase()).as_deref() {
        None | Some("" | "none" | "high") => Ok(false),
        Some("low") => Ok(true),
        Some(v) => {
            Err(Error::InvalidArgument(format!("WGPU_POWER_PREF={v:?} is none of low, high, none")))
        }
    }
}

/// The sort key: hardware before software, discrete before integrated unless `low_power` is set,
/// Vulkan before DX12 (64-bit types).
fn rank(info: &wgpu::AdapterInfo, low_power: bool) -> (u32, u32) {
    use wgpu::{Backend, DeviceType};
    let kind = match info.device_type {
        DeviceType::DiscreteGpu => 1,
        DeviceType::IntegratedGpu => {
            if low_power {
                0
            } else {
                2
            }
        }
        DeviceType::VirtualGpu => 3,
        DeviceType::Other => 4,
        DeviceType::Cpu => 5,
    };
    let backend = match info.backend {
        Backend::Vulkan | Backend::Metal => 0,
        _ => 1,
    };
    (kind, backend)
}

/// Whether an adapter computes on the CPU.
fn is_software(ty: wgpu::DeviceType) -> bool {
    ty == wgpu::DeviceType::Cpu
}

/// The usable adapters that become devices if no index is given: the hardware. Software adapters do
/// too if they were asked for by name, or if there is no hardware.
fn by_default(types: &[wgpu::DeviceType], is_named: bool) -> Vec<usize> {
    let all_software = types.iter().all(|ty| is_software(*ty));
    (0..types.len()).filter(|&i| is_named || all_software || !is_software(types[i])).collect()
}

/// Whether two adapters are one GPU seen through two backends.
fn same_gpu(a: &wgpu::AdapterInfo, b: &wgpu::AdapterInfo) -> bool {
    a.backend != b.backend && a.vendor == b.vendor && a.device == b.device && a.name == b.name
}

/// The reason if an adapter cannot run our kernels.
fn unusable(adapter: &wgpu::Adapter) -> Option<String> {
    let limits = adapter.limits();
    if !adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
        return Some("it has no compute shaders".into());
    }
    let at_least = [
        ("storage buffers per shader", u64::from(limits.max_storage_buffers_per_shader_stage), 8),
        ("bytes in a storage binding", limits.max_storage_buffer_binding_size, 128 << 20),
        (
            "invocations in a workgroup",
            u64::from(limits.max_compute_invocations_per_workgroup),
            256,
        ),
        (
            "bytes of workgroup memory",
            u64::from(limits.max_compute_workgroup_storage_size),
            16 << 10,
        ),
        (
            "workgroups in a dimension",
            u64::from(limits.max_compute_workgroups_per_dimension),
            65_535,
        ),
    ];
    at_least
        .iter()
        .find(|(_, has, needs)| has < needs)
        .map(|(what, has, needs)| format!("{has} {what}, {needs} are needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_accepts_indices_only() {
        assert_eq!(visible_devices(" 1, 0 ").unwrap(), [1, 0]);
        assert_eq!(visible_devices("0,0").unwrap(), [0, 0]);
        for none in ["", " ", "-1", " -1 ", "-1,0"] {
            assert!(visible_devices(none).unwrap().is_empty(), "{none:?}");
        }
        assert_eq!(visible_devices("1,-1,0").unwrap(), [1]);
        for bad in ["-2", "a", "0,,1", "0;1", "1.0"] {
            assert!(
                matches!(visible_devices(bad),
                    Err(Error::InvalidArgument(m)) if m.contains("TF_WGPU_VISIBLE_DEVICES")),
                "{bad}"
            );
        }
    }

    #[test]
    fn unknown_values_are_refused() {
        assert!(backends(Some("vulkan,opengl"), SERVING).is_err());
        assert_eq!(
            backends(Some("vk, metal"), SERVING).unwrap(),
            (wgpu::Backends::VULKAN | wgpu::Backends::METAL, None)
        );
        assert!(low_power(Some("medium")).is_err());
    }

    #[test]
    fn backends_that_the_system_lacks_are_told() {
        let linux = wgpu::Backends::VULKAN;
        for unset in [None, Some(""), Some(" ")] {
            assert_eq!(backends(unset, linux).unwrap(), (SERVING, None), "{unset:?}");
        }
        assert_eq!(backends(Some("Vulkan"), linux).unwrap(), (linux, None));
        let (chosen, line) = backends(Some("vulkan,metal,d3d12"), linux).unwrap();
        assert_eq!(chosen, linux);
        assert_eq!(
            line.unwrap(),
            "WGPU_BACKEND=\"vulkan,metal,d3d12\": this system has no metal and no d3d12, only \
             vulkan"
        );
        let refused = backends(Some("metal"), linux).unwrap_err().to_string();
        assert!(refused.contains("this system has no metal, only vulkan"), "{refused}");
    }

    #[test]
    fn minus_one_alone_switches_devices_off() {
        for (value, off) in [("-1", true), (" -1 ", true), ("", false), ("-1,0", false)] {
            let found = selected(&[("TF_WGPU_VISIBLE_DEVICES", value)]);
            assert_eq!(found.is_switched_off, off, "{value:?}");
            assert!(found.adapters.is_empty() && found.problem.is_some(), "{value:?}");
        }
    }

    #[test]
    fn software_adapters_are_devices_if_asked_for_or_if_there_is_nothing_else() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
        // The types in the order of their ranks, then the devices without a name and with one.
        let cases: &[(&[wgpu::DeviceType], &[usize], &[usize])] = &[
            (&[DiscreteGpu, IntegratedGpu, Cpu], &[0, 1], &[0, 1, 2]),
            (&[VirtualGpu, Cpu], &[0], &[0, 1]),
            (&[Other, Cpu, Cpu], &[0], &[0, 1, 2]),
            (&[Cpu], &[0], &[0]),
            (&[Cpu, Cpu], &[0, 1], &[0, 1]),
            (&[DiscreteGpu], &[0], &[0]),
        ];
        for (types, without, with) in cases {
            assert_eq!(by_default(types, false), *without, "{types:?}");
            assert_eq!(by_default(types, true), *with, "{types:?}, named");
        }
    }

    /// The selection that these variables give on the machine of the tests.
    fn selected(variables: &[(&str, &str)]) -> Selection {
        Selection::enumerate(&|name| {
            let set = variables.iter().find(|(variable, _)| *variable == name);
            set.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_last_resort_is_one_that_no_variable_asked_for() {
        let plain = selected(&[]);
        let types: Vec<_> = plain.adapters.iter().map(|a| a.get_info().device_type).collect();
        assert_eq!(plain.is_last_resort, types.iter().all(|ty| is_software(*ty)));
        assert!(
            types.iter().all(|ty| is_software(*ty)) || !types.iter().any(|ty| is_software(*ty))
        );
        for report in plain.found.iter().filter(|report| report.index.is_some()) {
            let (index, name) = (report.index.unwrap().to_string(), &report.info.name);
            for variable in
                [("TF_WGPU_VISIBLE_DEVICES", index.as_str()), ("WGPU_ADAPTER_NAME", name.as_str())]
            {
                let chosen = selected(&[variable]);
                assert!(!chosen.is_last_resort, "{variable:?}");
                assert_eq!(chosen.adapters[0].get_info().name, *name, "{variable:?}");
            }
        }
        assert!(!selected(&[("TF_WGPU_VISIBLE_DEVICES", "99")]).is_last_resort);
    }

    #[test]
    fn an_adapter_may_be_several_devices() {
        let selection = selected(&[("TF_WGPU_VISIBLE_DEVICES", "0,0,0")]);
        assert_eq!(selection.adapters.len(), 3);
        let used: Vec<_> = selection.found.iter().filter(|f| !f.devices.is_empty()).collect();
        assert_eq!(used.iter().map(|f| &f.devices[..]).collect::<Vec<_>>(), [[0, 1, 2]]);
        assert_eq!((selection.sharers(2), selection.sharers(3)), (3, 1));
    }

    #[test]
    fn an_empty_list_hides_every_device() {
        let selection =
            Selection::enumerate(&|name| (name == "TF_WGPU_VISIBLE_DEVICES").then(String::new));
        assert!(selection.adapters.is_empty());
        assert!(selection.problem.unwrap().contains("hides every device"));
    }
}
