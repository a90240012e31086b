"""Inspects the graphs that TensorFlow runs."""

from collections import Counter

from tensorflow_wgpu import _fallbacks
from tensorflow_wgpu._library import device_type


def optimized(function, *args, **kwargs):
    """Calls a tf.function and returns its result and the nodes that ran, after all graph
    optimizers.
    """
    with _fallbacks.collected() as graphs:
        result = function(*args, **kwargs)
    nodes = []
    for graph in graphs:
        for partition in graph.partition_graphs:
            nodes.extend(partition.node)
            for body in partition.library.function:
                nodes.extend(body.node_def)
    return result, nodes


def ops(nodes, device=None):
    """The number of nodes of each op on the devices of a type, by default ours."""
    device = device or device_type()
    return Counter(node.op for node in nodes if f"device:{device}:" in node.device)
