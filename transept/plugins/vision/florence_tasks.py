"""Florence-2's tasks, and the question for each task's token.

Transformers' Florence2Processor has the same questions; checkpoints were trained on them.
"""

from __future__ import annotations

from transept.authoring import CheckpointView, PromptError, VisionTask

QUESTIONS = {
    "<OCR>": "What is the text in the image?",
    "<OCR_WITH_REGION>": "What is the text in the image, with regions?",
    "<CAPTION>": "What does the image describe?",
    "<DETAILED_CAPTION>": "Describe in detail what is shown in the image.",
    "<MORE_DETAILED_CAPTION>": "Describe with a paragraph what is shown in the image.",
    "<OD>": "Locate the objects with category name in the image.",
    "<DENSE_REGION_CAPTION>": "Locate the objects in the image, with their descriptions.",
    "<REGION_PROPOSAL>": "Locate the region proposals in the image.",
}
QUESTIONS_ABOUT = {  # {input}: the text after the token
    "<CAPTION_TO_PHRASE_GROUNDING>": "Locate the phrases in the caption: {input}",
    "<REFERRING_EXPRESSION_SEGMENTATION>": "Locate {input} in the image with mask",
    "<REGION_TO_SEGMENTATION>": "What is the polygon mask of region {input}",
    "<OPEN_VOCABULARY_DETECTION>": "Locate {input} in the image.",
    "<REGION_TO_CATEGORY>": "What is the region {input}?",
    "<REGION_TO_DESCRIPTION>": "What does the region {input} describe?",
    "<REGION_TO_OCR>": "What text is in the region {input}?",
}


def question(prompt: str) -> str:
    """Return the question of a prompt's task, or the prompt itself if it names no task.

    Raises PromptError for text beside the token of a task without an input.
    """
    for token, asked in QUESTIONS.items():
        if token in prompt:
            if prompt != token:
                raise PromptError(f'{token} takes no text beside it, and the prompt is "{prompt}": write "{token}"')
            return asked
    for token, asked in QUESTIONS_ABOUT.items():
        if token in prompt:
            return asked.replace("{input}", prompt.replace(token, "").strip())
    return prompt


def tasks(view: CheckpointView) -> dict[str, VisionTask]:
    """Return the tasks whose answer is only text."""
    return {
        "read": VisionTask(encoder_prompt="<OCR>"),
        "caption": VisionTask(encoder_prompt="<CAPTION>"),
        "detailed-caption": VisionTask(encoder_prompt="<DETAILED_CAPTION>"),
        "more-detailed-caption": VisionTask(encoder_prompt="<MORE_DETAILED_CAPTION>"),
    }
