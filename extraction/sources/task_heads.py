"""The catalogue of task heads: every class of the model types that are used most, but their base models.

The list is made by hand from what is well known of the Hub's most downloaded and most fine-tuned repositories; nobody
counted. `hub?sort=downloads` has the count of the day.
"""

from extraction.sources import transformers_models

MOST_USED = tuple(
    """albert audio-spectrogram-transformer bart beit bert big_bird bigbird_pegasus blenderbot blip blip-2 bloom
    camembert canine clip codegen convbert convnext convnextv2 data2vec-audio deberta deberta-v2 deepseek_v3 deit detr
    dinov2 distilbert dpt electra ernie esm falcon gemma gemma2 gemma3 gemma3_text gpt2 gpt_neo gpt_neox gpt_oss gptj
    granite grounding-dino hubert layoutlm layoutlmv3 led llama llava longformer longt5 m2m_100 mamba marian
    mask2former mbart mistral mixtral mobilebert mobilevit modernbert mpnet mpt mt5 olmo2 opt owlv2 owlvit paligemma
    patchtst pegasus phi phi3 qwen2 qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_vl resnet roberta rt_detr
    segformer siglip smolvlm speecht5 stablelm starcoder2 swin swinv2 t5 videomae vilt vit wav2vec2 wavlm whisper
    xlm-roberta xlnet yolos""".split()
)
"""The model types."""


def names() -> list[str]:
    """`MODEL_TYPE/CLASS` for each task head, in the order of the types.

    Raises ImportError where transformers is not installed.
    """
    bases = transformers_models.base_classes()
    return [
        f"{model_type}/{name}"
        for model_type in MOST_USED
        for name in transformers_models.classes(model_type)
        if name != bases.get(model_type)
    ]
