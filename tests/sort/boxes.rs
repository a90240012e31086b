//! Boxes that suppress each other.

use super::*;
use tensorflow_wgpu::device::Profile;

/// Greedy suppression, by its definition.
fn suppressed(boxes: &[f32], scores: &[f32], limit: usize, overlap: f32, lowest: f32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] > lowest).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    let corners = |i: usize| {
        let b = &boxes[4 * i..][..4];
        [b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])]
    };
    let iou = |i: usize, j: usize| {
        let (a, b) = (corners(i), corners(j));
        let area = |c: [f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
        if area(a) <= 0.0 || area(b) <= 0.0 {
            return 0.0;
        }
        let extent = |k: usize| (a[k + 2].min(b[k + 2]) - a[k].max(b[k])).max(0.0);
        let shared = extent(0) * extent(1);
        shared / (area(a) + area(b) - shared)
    };
    let mut picked: Vec<usize> = Vec::new();
    for i in order {
        if picked.len() < limit && picked.iter().all(|j| iou(*j, i) <= overlap) {
            picked.push(i);
        }
    }
    picked.into_iter().map(|i| i as i32).collect()
}

#[test]
fn non_max_suppression() {
    for (n, limit, overlap, lowest) in [
        (6, 3, 0.5, 0.0),
        (0, 3, 0.5, 0.0),
        (1000, 400, 0.3, 0.2),
        (300, 300, 0.0, 0.1),
        (257, 9, 1.0, 0.9),
        (5, 0, 0.5, 0.0),
    ] {
        // Corners on a grid of sixteenths: areas are exact. Some boxes are flipped, some empty.
        let at = |i: usize, seed| number(i, seed, 64) as f32 / 16.0;
        let boxes: Vec<f32> = (0..n)
            .flat_map(|i| {
                let (y, x) = (at(i, 1), at(i, 2));
                let (h, w) = (number(i, 3, 24) as f32 / 16.0, number(i, 4, 24) as f32 / 16.0);
                if i % 5 == 0 { [y + h, x, y, x + w] } else { [y, x, y + h, x + w] }
            })
            .collect();
        let scores: Vec<f32> = (0..n).map(|i| number(i, 5, 200) as f32 / 200.0).collect();
        let (b, s) = (HostTensor::f32(&[n, 4], &boxes), HostTensor::f32(&[n], &scores));
        let host = |v: f32| HostTensor::f32(&[], &[v]);
        let size = HostTensor::i32(&[], &[limit]);
        let limit = limit as usize;
        let node = |op| Node::new(op).attr("T", DType::F32);
        let list = |v: Vec<i32>| HostTensor::i32(&[v.len()], &v);
        let all = suppressed(&boxes, &scores, limit, overlap, f32::MIN);
        check(
            &node("NonMaxSuppressionV2"),
            &[b.clone(), s.clone(), size.clone(), host(overlap)],
            &[list(all)],
        );
        let inputs = [b, s, size, host(overlap), host(lowest)];
        let some = suppressed(&boxes, &scores, limit, overlap, lowest);
        check(&node("NonMaxSuppressionV3"), &inputs, &[list(some.clone())]);
        let valid = HostTensor::i32(&[], &[some.len() as i32]);
        let v4 = |pad: bool| node("NonMaxSuppressionV4").attr("pad_to_max_output_size", pad);
        check(&v4(false), &inputs, &[list(some.clone()), valid.clone()]);
        let mut padded = some;
        padded.resize(limit, 0);
        check(&v4(true), &inputs, &[list(padded), valid]);
    }
    let node = Node::new("NonMaxSuppressionV2").attr("T", DType::F32);
    let inputs = |overlap: f32, size: i32, columns: usize| {
        let boxes = HostTensor::f32(&[1, columns], &vec![0.0; columns]);
        [
            boxes,
            HostTensor::f32(&[1], &[1.0]),
            HostTensor::i32(&[], &[size]),
            HostTensor::f32(&[], &[overlap]),
        ]
    };
    fails(&node, &inputs(1.5, 1, 4), "iou_threshold must be in [0, 1]");
    fails(&node, &inputs(0.5, -1, 4), "output size must be non-negative");
    fails(&node, &inputs(0.5, 1, 3), "boxes must have 4 columns");
}

/// Selections beyond the number that a candidate can visit in one program.
#[test]
fn non_max_suppression_in_parts() {
    let n = 700;
    // Nothing overlaps but each second box with the one before.
    let boxes: Vec<f32> =
        (0..n).flat_map(|i| [0.0, (i / 2) as f32, 1.0, (i / 2 + 1) as f32]).collect();
    let scores: Vec<f32> = (0..n).map(|i| 1.0 - i as f32 / 1024.0).collect();
    let inputs: Vec<Input> = [
        HostTensor::f32(&[n, 4], &boxes),
        HostTensor::f32(&[n], &scores),
        HostTensor::i32(&[], &[600]),
        HostTensor::f32(&[], &[0.5]),
    ]
    .map(Input::from)
    .to_vec();
    let node = Node::new("NonMaxSuppressionV2").attr("T", DType::F32);
    let want: Vec<i32> = (0..n as i32).step_by(2).collect();
    for loop_limit in [65_535, 128, 600] {
        let profile = session().device.profile();
        let mut session = Session::under(Profile { loop_limit, ..profile }).expect("a device");
        let got = session.run(&node, &inputs).expect("a selection");
        assert_eq!(got[0], HostTensor::i32(&[want.len()], &want), "{loop_limit} iterations");
    }
}

#[test]
fn combined_non_max_suppression() {
    for (images, n, classes, own, per_class, total, pads, clips) in [
        (2, 40, 3, true, 5, 9, false, true),
        (2, 40, 3, false, 50, 200, false, false),
        (1, 300, 2, true, 280, 30, true, true),
        (3, 7, 4, false, 1, 9, true, true),
        (0, 7, 4, false, 1, 3, false, true),
        (2, 0, 3, true, 2, 3, false, true),
    ] {
        let q = if own { classes } else { 1 };
        let at = |i: usize, seed| number(i, seed, 64) as f32 / 32.0 - 0.5;
        let boxes: Vec<f32> = (0..images * n * q)
            .flat_map(|i| {
                let (y, x) = (at(i, 1), at(i, 2));
                [y, x, y + number(i, 3, 24) as f32 / 16.0, x + number(i, 4, 24) as f32 / 16.0]
            })
            .collect();
        // No two scores of an image are alike.
        let score = |i: usize| (i * 7919 % 4099) as f32 / 4099.0;
        let scores: Vec<f32> = (0..images * n * classes).map(score).collect();
        let out = if pads { usize::min(total, per_class * classes) } else { total };
        let (mut want, mut counts) = ([vec![], vec![], vec![]], vec![]);
        for image in 0..images {
            let mut found = Vec::new();
            for class in 0..classes {
                let of = |i: usize| (image * n + i) * q + class % q;
                let b: Vec<f32> = (0..n).flat_map(|i| boxes[4 * of(i)..][..4].to_vec()).collect();
                let s: Vec<f32> =
                    (0..n).map(|i| scores[(image * n + i) * classes + class]).collect();
                let picked = suppressed(&b, &s, per_class.min(n), 0.4, 0.1);
                found.extend(picked.into_iter().map(|i| {
                    let i = i as usize;
                    (s[i], class as f32, b[4 * i..][..4].to_vec())
                }));
            }
            found.sort_by(|a, b| b.0.total_cmp(&a.0));
            found.truncate(out);
            counts.push(found.len() as i32);
            found.resize(out, (0.0, 0.0, vec![0.0; 4]));
            for (score, class, b) in found {
                want[0].extend(b.iter().map(|v| if clips { v.clamp(0.0, 1.0) } else { *v }));
                want[1].push(score);
                want[2].push(class);
            }
        }
        let want = [
            HostTensor::f32(&[images, out, 4], &want[0]),
            HostTensor::f32(&[images, out], &want[1]),
            HostTensor::f32(&[images, out], &want[2]),
            HostTensor::i32(&[images], &counts),
        ];
        let node = Node::new("CombinedNonMaxSuppression")
            .attr("pad_per_class", pads)
            .attr("clip_boxes", clips);
        let inputs = [
            HostTensor::f32(&[images, n, q, 4], &boxes),
            HostTensor::f32(&[images, n, classes], &scores),
            HostTensor::i32(&[], &[per_class as i32]),
            HostTensor::i32(&[], &[total as i32]),
            HostTensor::f32(&[], &[0.4]),
            HostTensor::f32(&[], &[0.1]),
        ];
        check(&node, &inputs, &want);
        if n == 40 && own {
            let with = |i: usize, t: HostTensor| {
                let mut changed = inputs.clone();
                changed[i] = t;
                changed
            };
            fails(&node, &with(2, HostTensor::i32(&[], &[0])), "must be positive");
            fails(&node, &with(3, HostTensor::i32(&[], &[-1])), "must be > 0");
            fails(&node, &with(4, HostTensor::f32(&[], &[1.5])), "must be in [0, 1]");
            fails(&node, &with(0, HostTensor::f32(&[2, 40, 3], &[0.0; 240])), "must be 4-D");
            let two = HostTensor::f32(&[2, 40, 2, 4], &[0.0; 640]);
            fails(&node, &with(0, two), "either 1 or num classes");
        }
    }
}

#[test]
fn bounding_box_proposals() {
    let (images, [height, width, each], first, total) = (2, [5, 4, 3], 40, 12);
    let n = height * width * each;
    let value = |i: usize, seed, scale: f32| (number(i, seed, 64) as f32 / 64.0 - 0.5) * scale;
    let anchors: Vec<f32> = (0..n)
        .flat_map(|i| {
            let (y, x) = (value(i, 1, 40.0) + 20.0, value(i, 2, 40.0) + 20.0);
            [y, x, y + value(i, 3, 8.0) + 8.0, x + value(i, 4, 8.0) + 8.0]
        })
        .collect();
    let deltas: Vec<f32> = (0..4 * images * n).map(|i| value(i, 5, 0.5)).collect();
    let scores: Vec<f32> = (0..images * n).map(|i| (i * 37 % 127) as f32 / 127.0).collect();
    let info = [30.0, 40.0, 1.0, 0.0, 0.0, 40.0, 30.0, 2.0, 0.0, 0.0];
    let (mut boxes, mut probabilities) = (Vec::new(), Vec::new());
    for image in 0..images {
        let s = &scores[image * n..][..n];
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| s[*b].total_cmp(&s[*a]).then(a.cmp(b)));
        order.truncate(first);
        let [h, w, scale] = [0, 1, 2].map(|k| info[image * 5 + k]);
        let made: Vec<[f32; 4]> = order
            .iter()
            .map(|i| {
                let (a, d) = (&anchors[4 * i..], &deltas[4 * (image * n + i)..]);
                let along = |k: usize, extent: f32| {
                    let size = a[k + 2] - a[k];
                    let center = a[k] + 0.5 * size + size * d[k];
                    let half = 0.5 * size * d[k + 2].min((1000.0_f32 / 16.0).ln()).exp();
                    [center - half, center + half].map(|v| v.min(extent).max(0.0))
                };
                let ([y0, y1], [x0, x1]) = (along(0, h), along(1, w));
                [y0, x0, y1, x1]
            })
            .collect();
        let fits = |b: &[f32; 4]| f32::min(b[2] - b[0], b[3] - b[1]) >= 1.5 * scale;
        let kept: Vec<f32> = made.iter().map(|b| if fits(b) { 1.0 } else { -1.0 }).collect();
        let picked = suppressed(&made.concat(), &kept, total, 0.3, 0.0);
        assert!(picked.len() > 3, "the case is too easy");
        for k in 0..total {
            let place = picked.get(k).map(|p| *p as usize);
            boxes.extend(place.map_or([0.0; 4], |p| made[p]));
            probabilities.push(place.map_or(0.0, |p| s[order[p]]));
        }
    }
    let node = Node::new("GenerateBoundingBoxProposals").attr("post_nms_topn", total as i64);
    let inputs = [
        HostTensor::f32(&[images, height, width, each], &scores),
        HostTensor::f32(&[images, height, width, 4 * each], &deltas),
        HostTensor::f32(&[images, 5], &info),
        HostTensor::f32(&[height, width, 4 * each], &anchors),
        HostTensor::f32(&[], &[0.3]),
        HostTensor::i32(&[], &[first as i32]),
        HostTensor::f32(&[], &[1.5]),
    ];
    for misalign in [0, 1] {
        let got = run(&node, &inputs, misalign).expect("proposals");
        assert_eq!(got[0].dims[..], [images, total, 4]);
        for (got, want) in got.iter().zip([&boxes, &probabilities]) {
            for (g, w) in got.to_f64().iter().zip(want) {
                assert!((g - f64::from(*w)).abs() < 1e-4, "{g} should be {w}");
            }
        }
    }
    let with = |i: usize, t: HostTensor| {
        let mut changed = inputs.clone();
        changed[i] = t;
        changed
    };
    fails(&node, &with(4, HostTensor::f32(&[], &[1.5])), "should be between 0 and 1");
    fails(&node, &with(5, HostTensor::i32(&[], &[0])), "should be greater than 0");
    fails(&node, &with(2, HostTensor::f32(&[2, 3], &[1.0; 6])), "image_info must be [2,5]");
}
