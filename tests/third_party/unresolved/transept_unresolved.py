from transept.authoring import ModelSpec, SpeechSpec, SpeechTokens, VisionSpec, hookimpl

speech = SpeechSpec(
    sample_rate=16_000,
    window_seconds=lambda view: 30.0,
    languages=lambda view: {},
    decoder_prompt=lambda view, **asked: [0],
    tokens=lambda view: SpeechTokens(1, 0),
    features="transept_unresolved_licence:features",
    frames_per_second=100,
    timestamp_rules="no colon",
    unspoken_tokens="json:dumps",
)


@hookimpl
def register_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            "unresolved",
            ("UnresolvedForConditionalGeneration",),
            "transept_unresolved:Model",
            weight_maps={"huggingface": "transept_nowhere.weights:HUGGINGFACE", "ctranslate2": "json:__name__"},
            input_mappers={"image": "transept_unresolved_mapper:map_image", "audio_features": "json:__name__"},
            encoder_inputs={"marks": lambda value, token_ids, view: None},
            speech=speech,
            vision=VisionSpec(modality="image"),
        )
    ]
