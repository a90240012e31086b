"""Vision networks of keras-cv-attention-models, without pretrained weights, on small images: a step
of training and a prediction of each.
"""

import gc

import keras_cv_attention_models as models
import numpy as np
import pytest
import tensorflow as tf
from weights import Snapshot, randomize

CLASSES = 4
#: The smallest network of each family, with the input's edge: larger than 32 if 32 is too small or
#: divides badly.
NETWORKS = {
    "beit.BeitBasePatch16": 32,
    "botnet.BotNet26T": 64,
    "caformer.CAFormerS18": 64,
    "cmt.CMTTiny": 64,
    "coat.CoaTLiteTiny": 32,
    "coatnet.CoAtNet0": 64,
    "convnext.ConvNeXtTiny": 32,
    "convnext.ConvNeXtV2Atto": 32,
    "cotnet.CotNet50": 64,
    "cspnext.CSPNeXtTiny": 64,
    "davit.DaViT_T": 64,
    "edgenext.EdgeNeXt_XX_Small": 64,
    "efficientformer.EfficientFormerL1": 64,
    "efficientformer.EfficientFormerV2S0": 64,
    "efficientnet.EfficientNetV1B0": 64,
    "efficientvit.EfficientViT_B0": 64,
    "fasternet.FasterNetT0": 64,
    "fastvit.FastViT_T8": 64,
    "gcvit.GCViT_XXTiny": 64,
    "ghostnet.GhostNetV2_100": 64,
    "halonet.HaloNet26T": 64,
    "hiera.HieraTiny": 64,
    "hornet.HorNetTiny": 64,
    "iformer.IFormerSmall": 64,
    "inceptionnext.InceptionNeXtTiny": 64,
    "lcnet.LCNet050": 64,
    "levit.LeViT128S": 64,
    "maxvit.MaxViT_Tiny": 64,
    "mlp_family.MLPMixerS32": 64,
    "mobilenetv3.MobileNetV3Small050": 64,
    "mobilevit.MobileViT_XXS": 64,
    "mobilevit.MobileViT_V2_050": 64,
    "moganet.MogaNetXtiny": 64,
    "nat.NAT_Mini": 64,
    "nfnets.NFNetF0": 64,
    "pvt.PVT_V2B0": 64,
    "repvit.RepViT_M09": 64,
    "mlp_family.ResMLP12": 64,
    "resnest.ResNest50": 64,
    "resnet_family.RegNetY040": 64,
    "swin_transformer_v2.SwinTransformerV2Tiny_window8": 64,
    "tinynet.TinyNetE": 64,
    "tinyvit.TinyViT_5M": 64,
    "uniformer.UniformerSmall32": 64,
    "vanillanet.VanillaNet5": 64,
    "volo.VOLO_d1": 64,
    "wave_mlp.WaveMLP_T": 64,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_network(values, name):
    """The predictions before and after a step, and the loss of the step."""
    # The models and functions of earlier cases would take all memory.
    tf.keras.backend.clear_session()
    gc.collect()
    tf.keras.utils.set_random_seed(3)
    family, _, network = name.partition(".")
    size = NETWORKS[name]
    random = np.random.default_rng(1)
    x = random.normal(0, 1, (2, size, size, 3)).astype("float32")
    y = np.eye(CLASSES, dtype="float32")[random.integers(0, CLASSES, 2)]
    made = getattr(getattr(models, family), network)(
        input_shape=(size, size, 3), num_classes=CLASSES, pretrained=None
    )
    randomize(made, 2)
    made.compile(tf.keras.optimizers.SGD(1e-3), "categorical_crossentropy")
    snapshot = Snapshot(made)

    def program(disturb):
        snapshot.restore()
        disturb(made)
        before = made.predict(x, verbose=0)
        loss = made.train_on_batch(x, y)
        return {
            "before": before.astype("float32"),
            "loss": np.asarray(loss, "float32"),
            "after": made.predict(x, verbose=0).astype("float32"),
        }

    values.compare(program)
