"""Search, as readers ask: the page that answers stands among the first three results, and opens where it answers."""

import pytest

from tests.course.site import browser

pytestmark = browser.needed

# What a student types, and the pages that answer it. Written before the search was; not to be fitted to it.
QUESTIONS = {
    "why do we divide by the square root of d": "09",
    "what is a KV cache": "11",
    "how to install": "README",
    "loss is nan": "05 14",
    "how do I load GPT-2 weights": "16",
    "difference between LayerNorm and RMSNorm": "04",
    "what does byte pair encoding do": "01",
    "why is softmax unstable for large numbers": "05",
    "how does rotary position embedding work": "07",
    "causal mask": "09",
    "what is grouped query attention": "10",
    "residual connection why": "12",
    "learning rate warmup": "14",
    "what temperature should I use": "15",
    "top-p sampling": "15",
    "how does flash attention save memory": "17",
    "how do experts get chosen": "18",
    "int8 quantization error": "19",
    "what is LoRA": "20",
    "how does DPO work": "21",
    "how many parameters does a linear layer have": "03",
    "pre-norm or post-norm": "12",
    "what is SwiGLU": "08",
    "einops rearrange": "00",
    "tied embeddings": "02",
    "sinusoidal positions formula": "06",
    "gradient clipping": "14",
    "how do I run the tests": "README CONTRIBUTING",
    "how to see a hint": "README",
    "encoder vs decoder": "13",
}
