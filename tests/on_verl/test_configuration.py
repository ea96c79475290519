"""The configuration as a whole: the paper's recipe, what is refused, what is written down."""

import math
import re

import pytest
import yaml
from composed import GPPO, composed, lines
from omegaconf import OmegaConf
from rollout_fakes import SETTINGS, settings
from small_cluster import small_cluster
from verl.utils.config import omega_conf_to_dataclass

from klearlib.errors import KlearError, ParameterError
from klearlib.rl.settings import RLSettings
from klearlib.scale.configuration import compose

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

# Section 4 of the paper, on 8 nodes of 8 GPUs.
PAPER_CLUSTER = small_cluster(
    nodes=8,
    gpus_per_node=8,
    tensor_parallel=2,
    sequence_parallel=4,
    precision="bf16",
    attention="flash_attention_2",
    max_tokens_per_gpu=8704,
    prompt_tokens=2048,
    gradient_checkpointing=True,
    offload=True,
)


@pytest.fixture
def long_model(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"max_position_embeddings": 40960}')
    return tmp_path / "model"


def test_the_papers_recipe(long_model):
    """All that no setting and no field maps to, see test_recipe.py."""
    config = composed(long_model, settings=settings(max_new_tokens=32768), cluster=PAPER_CLUSTER)
    expected = {
        f"{ACTOR}.ppo_epochs": 1,
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.28,
        f"{ACTOR}.policy_loss.loss_mode": "klear_gppo",
        f"{ACTOR}.policy_loss.dual_clip": None,
        f"{ACTOR}.policy_loss.log_ratio_clamp": None,
        f"{ACTOR}.loss_agg_mode": "token-mean",
        f"{ACTOR}.use_kl_loss": False,
        f"{ACTOR}.entropy_coeff": 0,
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.fsdp_config.mixed_precision": {
            "param_dtype": "bf16",
            "reduce_dtype": "fp32",
            "buffer_dtype": "fp32",
        },
        f"{ACTOR}.fsdp_config.entropy_from_logits_with_chunking": True,
        f"{ACTOR}.fsdp_config.entropy_checkpointing": True,
        f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{ROLLOUT}.top_p": 1.0,
        f"{ROLLOUT}.top_k": -1,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.max_model_len": 34816,
        f"{ROLLOUT}.agent.num_workers": 0,
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": False,
        "critic.enable": False,
        "reward.reward_model.enable": False,
        "reward.num_workers": 0,
        "trainer.v1.trainer_mode": "klear",
        "trainer.logger": ["console"],
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
        "trainer.resume_mode": "disable",
    }
    found = {key: OmegaConf.select(config, key) for key in expected}
    assert OmegaConf.to_container(OmegaConf.create(found), resolve=True) == expected
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.engine.strategy == "fsdp2" and actor.engine.ulysses_sequence_parallel_size == 4


def test_our_trainer_gets_the_settings_as_they_are(model):
    odd = settings(
        benchmarks={"math_a": 30, "AIME 2024: I.b": 15}, learning_rate=1e-7 / 3, max_tests=None
    )
    rule = GPPO | {"beta_low": 0.5}
    config = composed(model, settings=odd, seed=2**62 + 1, rule=rule)
    own = OmegaConf.to_container(config.klear, resolve=True)
    assert RLSettings(**own["settings"]) == odd
    assert (own["seed"], own["rule"]) == (2**62 + 1, rule)
    assert own["world"] == str(model.parent / "world")
    assert own["problems"] == str(model.parent / "world" / "train.jsonl")


def test_a_run_goes_on_from_the_checkpoint_that_it_is_given(model):
    place = model.parent / "checkpoints" / "global_step_2"
    trainer = composed(model, resumed=place).trainer
    assert (trainer.resume_mode, trainer.resume_from_path) == ("resume_path", str(place))
    assert trainer.default_local_dir == str(model.parent / "checkpoints")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("actor_rollout_ref.actor.foo=1", "actor_rollout_ref.actor.foo"),
        ("+actor_rollout_ref.rollout.foo=1", "foo"),
        ("actor_rollout_ref.nccl_timeout=[1", "'[1'"),
        ("trainer.device", "trainer.device"),
    ],
)
def test_an_override_that_is_wrong_is_named_in_one_line(model, line, named):
    with pytest.raises(KlearError) as caught:
        composed(model, cluster=small_cluster(overrides=[line]))
    assert named in str(caught.value) and "compute.yaml's verl" in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "line",
    [
        "actor_rollout_ref.actor.optim.lr=1.0",
        "+actor_rollout_ref.actor.optim.override_optimizer_config={eps:1.0}",
        "actor_rollout_ref.actor.clip_ratio_high=0.5",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.rollout.temperature=0.5",
        "algorithm.rollout_correction.bypass_mode=True",
        "~trainer",
        "++klear.settings.alpha=1",
    ],
)
def test_what_the_settings_decide_is_not_for_overrides(model, line):
    """The metrics of the run would go on to say what the settings say."""
    key = line.lstrip("+~").partition("=")[0]
    words = f"overrides in compute.yaml's verl sets {re.escape(key)}, "
    with pytest.raises(ParameterError, match=words):
        lines(model, cluster=small_cluster(overrides=[line]))


def test_the_saved_text_is_the_whole_configuration_without_references(model):
    config = composed(model, rule={"name": "unclipped"})
    OmegaConf.save(config, model.parent / "verl.yaml", resolve=True)
    text = (model.parent / "verl.yaml").read_text()
    held = yaml.safe_load(text)
    assert "${" not in text
    assert held["actor_rollout_ref"]["rollout"]["n"] == SETTINGS["group_size"]
    assert held["actor_rollout_ref"]["actor"]["rollout_n"] == SETTINGS["group_size"]  # a reference
    assert held["actor_rollout_ref"]["actor"]["clip_ratio_high"] == math.inf
    assert list(held) == list(config)
    assert compose(lines(model, rule={"name": "unclipped"})) == config
