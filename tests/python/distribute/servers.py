"""The processes of ParameterServerStrategy that are not the coordinator."""

import sys

import tensorflow as tf


def coordinators_cluster() -> tf.distribute.cluster_resolver.ClusterResolver:
    """The cluster of `TF_CONFIG`, in the coordinator. Any process other than `chief` serves for
    ever.
    """
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if sys.argv[1] != "chief":
        tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        ).join()
    return resolver
