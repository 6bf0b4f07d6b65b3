"""All settings, read once at the edge from the environment (prefix `SKILLERY_`)."""

from __future__ import annotations

import difflib
import functools
import logging
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage.errors import WrongInput
from storage.lance.served import LicenceClass
from tasks.crawl.http.settings import CrawlSettings

if TYPE_CHECKING:  # a search asks no LLM, and refines nothing
    from tasks.models.llm.client import Endpoint
    from tasks.parse.classify.options import TypingOptions
    from tasks.parse.edges.linker import EdgeOptions
    from tasks.refine.duplicates.near import NearLimits
    from tasks.refine.filters import FilterLimits

# Stages log for the page of their run and for the terminal; Prefect shows messages from this level on.
for _name in ("flows", "tasks"):
    logging.getLogger(_name).setLevel(logging.INFO)
Model = TypeVar("Model", bound=BaseSettings)
_TOKENS_EACH = 400  # of a fragment with its neighbours, by which a question fits its model's context


class Settings(BaseSettings, CrawlSettings):
    """The settings of runs and queries; the variable of `root` is SKILLERY_ROOT, and so on."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_", extra="ignore", frozen=True)

    root: str = Field("data", description="Folder of all that Skillery keeps, or s3://bucket/prefix.")
    encoder: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2", description="Hugging Face id, or a model's folder."
    )
    query_threads: int | None = Field(
        None, ge=1, description="Threads that encode a query or page; by default all cores."
    )
    device: str = Field(
        "auto", description="Where rerankers and trained models run: cpu, cuda, mps, or the fastest there is."
    )
    rerank: Literal["none", "fast", "best"] = Field(
        "best",
        description="How `search` reads the first skills beside the request: none, fast (8), or best (12).",
    )
    exact_rows: int = Field(
        100_000, ge=0,
        description="Skills up to which `search` compares a request with all whole vectors; of more, a scan "
        "along their principal axes tells with which, 500 at least.",
    )  # fmt: skip
    page_seconds: float = Field(
        5, gt=0, description="Seconds that `page` may encode a document; then it goes by words alone."
    )
    debug: bool = Field(False, description="Whether an error shows its stack, as --debug does.")
    quiet: bool = Field(False, description="Whether stderr shows warnings and errors alone, as with --quiet.")
    log_format: Literal["text", "json"] = Field(
        "text", description="How the log stands on stderr: lines for a person, or one JSON object a line."
    )
    openlineage: str = Field(
        "", description="Who is told of lineage: a server's URL, or file:PATH; nobody by default."
    )
    query_log: Literal["off", "counts", "texts"] = Field(
        "counts",
        description="What `serve`, `hook` and `install` keep of what is asked: nothing, counts by skill, or "
        "texts, redacted, too.",
    )
    sync_files: bool = Field(True, description="Whether a write waits until the disk holds it.")
    max_control_share: float = Field(
        0.1, ge=0, le=1, description="A text with a larger share of control characters is no text."
    )
    max_parts: int = Field(
        20_000, ge=1, description="A body of more lines and sentences is dropped: each may become a node."
    )
    min_words: int = Field(2, ge=0, description="A body of fewer words is dropped as too short.")
    min_language_confidence: float = Field(
        0.2, ge=0, le=1, description="How sure a text's language must be; 0 drops nothing for it."
    )
    drop_templates: bool = Field(True, description="Whether placeholders and unfilled templates are dropped.")
    drop_licences: list[LicenceClass] = Field(
        [], description="Classes, as when answering, to drop when refining; they count on the way out too."
    )
    licences_allow: list[str] | None = Field(
        None, description="SPDX ids of licences that allow all; none: those that ask for a notice at most."
    )
    licences_deny: list[str] | None = Field(
        None, description="SPDX ids of licences that are never served or exported; none: proprietary ones."
    )
    licences_unknown_serve: LicenceClass = Field(
        "allow", description="Class of unknown licences when answering on this machine."
    )
    licences_unknown_export: LicenceClass = Field(
        "metadata-only", description="Class of unknown licences when exporting."
    )
    licences_other_serve: LicenceClass = Field(
        "allow", description="Class, when answering on this machine, of licences in neither list."
    )
    licences_other_export: LicenceClass = Field(
        "metadata-only", description="Class of licences in neither list when exporting."
    )
    drop_risks: Literal["error", "warning", "info"] | None = Field(
        None, description="Drop what has a risk finding at least so grave; none: findings are advice alone."
    )
    risks: Literal["rules", "hybrid"] = Field(
        "rules",
        description="Whether the LLM is asked about skills in which the rules found no error (hybrid).",
    )
    risks_hold: Literal["error", "warning"] | None = Field(
        None,
        description="Serve the revision before one that adds a risk at least so grave, until that is "
        "accepted; none: tell of it alone.",
    )
    near_threshold: float = Field(
        0.85, ge=0.5, le=1, description="Jaccard similarity of word 5-shingles from which a text folds."
    )
    near_max_cluster: int = Field(1000, ge=1, description="Texts that fold onto one survivor at most.")
    workers: int | None = Field(
        None, ge=1, description="Processes that refine or parse side by side; none: as many as cores."
    )
    task_runner: Literal["threads", "dask", "ray"] = Field(
        "threads", description="Where the batches of refine, parse, index and evaluate run."
    )
    task_workers: int | None = Field(
        None, ge=1, description="Batches at once on a cluster, or that ask an LLM; none: as many as cores."
    )
    task_runner_address: str | None = Field(
        None, description="Dask's scheduler or Ray's head; none: a cluster of this machine for the run."
    )
    classifier: Literal["local", "llm", "hybrid"] | None = Field(
        None, description="What types nodes in a run; none: hybrid where an LLM is set up, else local."
    )
    segment: Literal["items", "skillpager"] = Field(
        "items", description="What a node is; skillpager: a list, with what announces it, is one node."
    )
    edges: Literal["rules", "llm", "hybrid"] = Field(
        "rules",
        description="What infers conditions and references: rules, the LLM, or (hybrid) both, the LLM being "
        "asked about candidates alone.",
    )
    expand: Literal["none", "llm"] = Field(
        "none", description="Whether the LLM foretells five requests a skill, which `search` looks at too."
    )
    llm_base_url: str = Field("", description="An OpenAI-compatible endpoint, its version included.")
    llm_model: str = Field("", description="The model's name there.")
    llm_api_key: SecretStr = Field(SecretStr(""), description="Its key; empty sends none.")
    llm_context: int | None = Field(
        None, ge=1024, description="Tokens of a question and its answer that the model takes; none: it says."
    )
    llm_batch: int | None = Field(
        None, ge=1, description="Fragments a question asks about; none: 20, or one per 400 tokens of context."
    )
    llm_concurrency: int = Field(4, ge=1, description="Questions under way at once in one process.")
    llm_timeout: float = Field(120.0, gt=0, description="Seconds that one answer may take in all.")
    llm_max_tokens: int = Field(1024, ge=1, description="The longest answer, in tokens.")
    llm_temperature: float = Field(0.0, ge=0, description="How far an answer may stray from the likeliest.")
    llm_top_p: float | None = Field(None, gt=0, le=1, description="Share of likely tokens; none: all.")
    llm_seed: int = Field(0, description="Sent along where the server takes one.")
    llm_max_total_tokens: int | None = Field(None, ge=0, description="Tokens that one run may spend.")
    llm_max_cost: float | None = Field(None, ge=0, description="Money that one run may spend.")
    llm_prompt_price: float = Field(0.0, ge=0, description="Money for a million tokens of questions.")
    llm_completion_price: float = Field(0.0, ge=0, description="Money for a million tokens of answers.")
    llm_accuracy: float | None = Field(
        None, gt=0, lt=1, description="How often its types are right; none: measured before it gives any."
    )
    rerank_accuracy: float = Field(
        0.8, gt=0.5, lt=1, description="The share of nodes that the LLM as reranker of pages judges right."
    )
    llm_threshold: float | None = Field(
        None, ge=0, le=1, description="Hybrid asks where local confidence is below; none: accuracy, or 0.79."
    )
    compose_certainty: float = Field(0.6, ge=0, le=1, description="Hybrid plans ask the LLM when no surer.")
    gate_max_shrink: float = Field(
        0.05, ge=0, le=1, description="Share of rows that a new version may lack of those served; 1: any."
    )
    gate_few: int = Field(
        10, ge=0, description="Losing no more rows than this is no shrink, whatever their share."
    )
    gate_max_loss: float = Field(
        0.02, ge=0, le=1,
        description="What a leg's MRR@10 on probes may fall below what is served, beyond noise; 1: any.",
    )  # fmt: skip
    keep_versions: int = Field(
        7, ge=2, description="Versions that stay, for `skillery rollback`; the one served always does."
    )
    keep_raw_days: int | None = Field(
        None, ge=1,
        description="Days for which `compact` keeps raw snapshots that are out of date; none: for ever.",
    )  # fmt: skip
    probes: int = Field(100, ge=1, description="Seeded probes of each kind that evaluate asks.")
    evaluation_min_found: float = Field(
        0.5, ge=0, le=1, description="Share of probes that search must find (hit@10); else evaluation fails."
    )
    evaluation_max_fall: float = Field(
        0.05, ge=0, le=1,
        description="What quality may fall, beyond chance, below the median of other versions; 1: any.",
    )  # fmt: skip
    evaluation_max_ms: float | None = Field(
        None, gt=0, description="95th percentile of a search in ms from which evaluation fails; none: any."
    )
    evaluation_max_slowdown: float = Field(
        2.0, ge=1, description="What latency may rise to, beyond noise, times that of others; inf: any."
    )
    evaluation_compared: int = Field(7, ge=1, description="Other versions that drift is told from.")

    def limits(self) -> FilterLimits:
        """Return the thresholds of refine's filters."""
        from tasks.refine.filters import FilterLimits  # noqa: PLC0415 (its libraries: queries do without)
        from tasks.refine.licences.policy import LicencePolicy  # noqa: PLC0415

        limits = FilterLimits(
            self.max_control_share, self.min_words, self.max_parts, self.min_language_confidence,
            self.drop_templates, tuple(self.drop_licences), self.drop_risks,
        )  # fmt: skip
        # Without classes to drop, a change of the policy must not refine anything again.
        served = LicencePolicy(**self.licence_policies()["serve"]) if self.drop_licences else limits.policy
        return replace(limits, policy=served)

    def crawl(self) -> CrawlSettings:
        """Return the settings of a crawl alone: no task of it is handed a credential."""
        return CrawlSettings(**self.model_dump(include=set(CrawlSettings.model_fields)))

    @property
    def fragments_at_once(self) -> int:
        """Fragments that one question asks about at most."""
        from tasks.parse.classify.llm import BATCH  # noqa: PLC0415

        return self.llm_batch or min(BATCH, (self.llm_context or _TOKENS_EACH * BATCH) // _TOKENS_EACH)

    def licence_policies(self) -> dict[str, dict[str, Any]]:
        """Return the fields of a `LicencePolicy` for `serve` and for `export`.

        Raises `WrongInput` if a list holds what is no SPDX identifier, or both lists hold the same one.
        """
        from tasks.refine.licences.policy import licence_policy  # noqa: PLC0415 (its library: queries do without)

        lists = self.licences_allow, self.licences_deny
        serve = licence_policy(*lists, unknown=self.licences_unknown_serve, other=self.licences_other_serve)
        export = licence_policy(
            *lists, unknown=self.licences_unknown_export, other=self.licences_other_export
        )
        return {"serve": asdict(serve), "export": asdict(export)}

    def near(self) -> NearLimits:
        """Return the thresholds of near-duplicates."""
        from tasks.refine.duplicates.near import NearLimits  # noqa: PLC0415 (its libraries: queries do without)

        return NearLimits(threshold=self.near_threshold, max_cluster=self.near_max_cluster)

    def gate(self) -> dict[str, Any]:
        """Return how many rows a new version may lose."""
        return {"max_shrink": self.gate_max_shrink, "few": self.gate_few}

    def gate_probes(self) -> dict[str, Any]:
        """Return how many probes compare a new version with the served one, and how much a leg may lose."""
        return {"count": self.probes, "max_loss": self.gate_max_loss}

    def thresholds(self) -> dict[str, Any]:
        """Return the thresholds of an evaluation."""
        names = ("min_found", "max_fall", "max_ms", "max_slowdown", "compared")
        return {name: getattr(self, f"evaluation_{name}") for name in names}


def load_settings() -> Settings:
    """Return the settings; raises `WrongInput` naming the variable whose value cannot be used."""
    return load(Settings)


def load(kind: type[Model]) -> Model:
    """Read settings of a kind from the environment; raises as `load_settings`."""
    return cast("Model", _read(kind, frozenset(os.environ.items())))


@functools.lru_cache(maxsize=16)
def _read(kind: type[BaseSettings], _environment: frozenset[tuple[str, str]]) -> BaseSettings:
    try:
        return kind()
    except ValidationError as error:
        first = error.errors()[0]
        # The location of an item in a list goes on after the field: the variable is the field's.
        name = str(kind.model_config.get("env_prefix", "")) + str(first["loc"][0]).upper()
        raise WrongInput(f"{name}={first['input']!r}: {first['msg']}") from error


# Settings of these have classes, and loaders, of their own.
_KINDS = ("SKILLPAGER", "SKILLFLOW", "SKILLROUTER", "TRAINING", "INDUCE", "INSTALL", "SERVE")
_OTHERS = tuple(f"SKILLERY_{kind}_" for kind in _KINDS)


def unknown_settings() -> dict[str, str | None]:
    """Return the environment variables named like a setting that are none, each with the nearest setting."""
    prefix = str(Settings.model_config.get("env_prefix"))
    known = [f"{prefix}{field.upper()}" for field in Settings.model_fields]
    unknown = sorted(os.environ.keys() - set(known))
    given = [name for name in unknown if name.startswith(prefix) and not name.startswith(_OTHERS)]
    return {name: next(iter(difflib.get_close_matches(name, known, n=1)), None) for name in given}


Kind = Literal["local", "llm", "hybrid"]
Index = Literal["all", "skills"]  # of what a run makes vectors: of nodes too, or of skills alone
Stage = Literal["refine", "parse"]  # of a backfill


def is_set_up(settings: Settings) -> bool:
    """Tell whether an LLM is set up."""
    return bool(settings.llm_base_url or settings.llm_model)


def run_llm(settings: Settings) -> TypingOptions | None:
    """Return how an LLM takes part in a run; None: it does not. Raises as `llm_options`.

    Without `SKILLERY_CLASSIFIER`, an LLM that is set up is asked about nodes of which the local classifier is
    unsure.
    """
    return llm_options(settings, settings.classifier or ("hybrid" if is_set_up(settings) else "local"))


def run_edges(settings: Settings) -> EdgeOptions | None:
    """Return how an LLM infers edges in a run; None: the rules do. Raises as `llm_options`."""
    if settings.edges == "rules":
        return None
    from tasks.parse.edges.linker import EdgeOptions  # noqa: PLC0415

    return EdgeOptions(settings.edges, asked_llm(settings))


def run_opinions(settings: Settings) -> TypingOptions | None:
    """Return how an LLM is asked about risks in a run; None: it is not. Raises as `llm_options`."""
    return llm_options(settings, "local" if settings.risks == "rules" else "llm")


def run_expansion(settings: Settings) -> TypingOptions | None:
    """Return how an LLM foretells requests in a run; None: it does not.

    Raises `WrongInput` as `llm_options`, or the encoder is not the default one.
    """
    if settings.expand == "llm":
        from tasks.models.adapted_encoder import BASE  # noqa: PLC0415
        from tasks.models.onnx_export import PACKAGED, resolve  # noqa: PLC0415

        if settings.encoder != BASE and resolve(settings.encoder)[1] != PACKAGED[BASE][2]:
            raise WrongInput("SKILLERY_EXPAND=llm: what is foretold is read by the default encoder alone")
    return llm_options(settings, "local" if settings.expand == "none" else "llm")


def llm_options(settings: Settings, kind: Kind) -> TypingOptions | None:
    """Return how an LLM takes part in a classification of this kind; None for `local`.

    Raises `WrongInput` if an LLM is to be asked, and its address, name or key is missing or wrong, or the
    package that asks it is not installed.
    """
    return None if kind == "local" else asked_llm(settings, hybrid=kind == "hybrid")


def asked_llm(settings: Settings, *, hybrid: bool = False) -> TypingOptions:
    """Return how the LLM that is set up is asked; raises as `llm_options`."""
    from tasks.models.llm.budget import Ceiling, Prices  # noqa: PLC0415
    from tasks.models.llm.client import require_openai  # noqa: PLC0415
    from tasks.models.llm.question import Sampling  # noqa: PLC0415
    from tasks.parse.classify.llm import ACCURACY  # noqa: PLC0415
    from tasks.parse.classify.options import TypingOptions  # noqa: PLC0415

    # Local answers that are surer than the model is right are right more often than its own.
    accuracy = ACCURACY if settings.llm_accuracy is None else settings.llm_accuracy
    threshold = accuracy if settings.llm_threshold is None else settings.llm_threshold
    options = TypingOptions(
        _endpoint(settings),
        threshold=threshold if hybrid else None,
        sampling=Sampling(
            settings.llm_temperature, settings.llm_seed, settings.llm_max_tokens, settings.llm_top_p
        ),
        batch=settings.fragments_at_once,
        accuracy=settings.llm_accuracy,
        prices=Prices(settings.llm_prompt_price, settings.llm_completion_price),
        ceiling=Ceiling(settings.llm_max_total_tokens, settings.llm_max_cost),
    )
    require_openai()
    return options


def _endpoint(settings: Settings) -> Endpoint:
    from tasks.models.llm.client import LLM_RETRY, Endpoint  # noqa: PLC0415

    if settings.llm_context is not None and settings.llm_context <= settings.llm_max_tokens:
        msg = f"SKILLERY_LLM_CONTEXT={settings.llm_context} holds no question: lower SKILLERY_LLM_MAX_TOKENS"
        raise WrongInput(f"{msg}={settings.llm_max_tokens}, the longest answer")
    return Endpoint(
        settings.llm_base_url, settings.llm_model, settings.llm_api_key.get_secret_value(),
        timeout=settings.llm_timeout, concurrency=settings.llm_concurrency, context=settings.llm_context,
        retry=replace(LLM_RETRY, wait_max=settings.retry_wait_max),
    )  # fmt: skip
