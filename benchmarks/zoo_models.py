"""Which models the zoo tries, and on how small an input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

USER_FILE = Path(__file__).with_name("user_models.py")

#: torchvision models that take one input size only; all others run on small images
_FIXED = ("vit_",)
_SMALLEST = {"inception_v3": 75, "maxvit_t": 224, "vgg": 32, "alexnet": 64}
_SMALL = 64

#: family -> timm model, side of its input (None: the model's own, the only one it takes)
TIMM = {
    "bat": ("bat_resnext26ts", None),
    "beit": ("beit_base_patch16_224", None),
    "botnet": ("botnet26t_256", None),
    "cait": ("cait_xxs24_224", None),
    "coatnet": ("coatnet_nano_rw_224", None),
    "convmixer": ("convmixer_768_32", 64),
    "convnext": ("convnext_atto", 64),
    "convnextv2": ("convnextv2_atto", 64),
    "crossvit": ("crossvit_tiny_240", None),
    "cspnet": ("cspresnet50", 64),
    "davit": ("davit_tiny", 64),
    "deit": ("deit_tiny_patch16_224", None),
    "deit3": ("deit3_small_patch16_224", None),
    "densenet": ("densenet121", 64),
    "dla": ("dla34", 64),
    "dpn": ("dpn68", 64),
    "edgenext": ("edgenext_xx_small", 64),
    "efficientformer": ("efficientformer_l1", None),
    "efficientformerv2": ("efficientformerv2_s0", None),
    "efficientnet": ("efficientnet_b0", 64),
    "efficientnetv2": ("efficientnetv2_rw_t", 64),
    "efficientvit": ("efficientvit_b0", 64),
    "efficientvit_msra": ("efficientvit_m0", None),
    "eva02": ("eva02_tiny_patch14_224", None),
    "fasternet": ("fasternet_t0", 64),
    "fastvit": ("fastvit_t8", 64),
    "flexivit": ("flexivit_small", None),
    "focalnet": ("focalnet_tiny_srf", 64),
    "gcvit": ("gcvit_xxtiny", None),
    "gernet": ("gernet_s", 64),
    "ghostnet": ("ghostnet_050", 64),
    "ghostnetv2": ("ghostnetv2_100", 64),
    "gmlp": ("gmlp_s16_224", None),
    "halonet": ("halonet26t", None),
    "hardcorenas": ("hardcorenas_a", 64),
    "hiera": ("hiera_tiny_224", None),
    "hrnet": ("hrnet_w18_small", 64),
    "inception_next": ("inception_next_atto", 64),
    "inception_v4": ("inception_v4", 96),
    "lambda_resnet": ("lambda_resnet26t", None),
    "levit": ("levit_128s", None),
    "lite0": ("tf_efficientnet_lite0", 64),
    "maxvit": ("maxvit_nano_rw_256", None),
    "maxxvit": ("maxxvit_rmlp_nano_rw_256", None),
    "mixer": ("mixer_s32_224", None),
    "mnasnet": ("mnasnet_small", 64),
    "mobilenetv3": ("mobilenetv3_small_050", 64),
    "mobilenetv4": ("mobilenetv4_conv_small", 64),
    "mobilenetv4_hybrid": ("mobilenetv4_hybrid_medium", 64),
    "mobileone": ("mobileone_s0", 64),
    "mobilevit": ("mobilevit_s", 64),
    "mobilevitv2": ("mobilevitv2_050", 64),
    "nextvit": ("nextvit_small", 64),
    "nf_resnet": ("nf_resnet26", 64),
    "nfnet": ("eca_nfnet_l0", 64),
    "pit": ("pit_ti_224", None),
    "poolformer": ("poolformer_s12", 64),
    "pvt_v2": ("pvt_v2_b0", 64),
    "rdnet": ("rdnet_tiny", 64),
    "regnetx": ("regnetx_002", 64),
    "regnety": ("regnety_002", 64),
    "repghost": ("repghostnet_050", 64),
    "repvgg": ("repvgg_a0", 64),
    "res2net": ("res2net50_14w_8s", 64),
    "resmlp": ("resmlp_12_224", None),
    "resnest": ("resnest14d", 64),
    "resnet": ("resnet26d", 64),
    "resnext": ("resnext50_32x4d", 64),
    "seresnext": ("seresnext26d_32x4d", 64),
    "skresnet": ("skresnet18", 64),
    "starnet": ("starnet_s1", 64),
    "swiftformer": ("swiftformer_xs", 64),
    "swin": ("swin_tiny_patch4_window7_224", None),
    "swinv2": ("swinv2_tiny_window8_256", None),
    "tiny_vit": ("tiny_vit_5m_224", None),
    "tinynet": ("tinynet_e", 64),
    "tresnet": ("tresnet_m", 64),
    "twins": ("twins_svt_small", None),
    "visformer": ("visformer_tiny", None),
    "vit": ("vit_tiny_patch16_224", None),
    "vit_clip": ("vit_base_patch32_clip_224", None),
    "vit_hybrid": ("vit_small_r26_s32_224", None),
    "volo": ("volo_d1_224", None),
    "vovnet": ("ese_vovnet19b_dw", 64),
    "xcit": ("xcit_nano_12_p16_224", None),
}
USER = ("net", "text", "segmentation", "video")
#: at least one of every kind of network, all quick
QUICK = (
    "resnet18", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x0_5", "densenet121",
    "googlenet", "timm/convnext_atto", "timm/vit_tiny_patch16_224", "timm/mobilevit_s",
    "timm/xcit_nano_12_p16_224", "timm/levit_128s", "timm/tf_efficientnet_lite0",
    "user:net", "user:text", "user:video",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """:param name: as the report calls it; ``model`` as ``load_model`` takes it
    :param side: of the input, None for the model's own
    """

    name: str
    model: str
    library: str
    family: str
    side: int | None


def _torchvision_side(name: str) -> int | None:
    if name.startswith(_FIXED):
        return None
    for prefix, side in _SMALLEST.items():
        if name.startswith(prefix):
            return side
    return _SMALL


def entries() -> list[Entry]:
    """All models: every torchvision classification model, one of each timm family, the user's."""
    from torchvision import models

    found = [
        Entry(name, name, "torchvision", name.partition("_")[0], _torchvision_side(name))
        for name in sorted(models.list_models(module=models))
    ]
    found += [
        Entry(f"timm/{name}", f"timm/{name}", "timm", family, side)
        for family, (name, side) in TIMM.items()
    ]
    found += [Entry(f"user:{name}", f"{USER_FILE}:{name}", "user", name, None) for name in USER]
    return found
