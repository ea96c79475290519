"""One row of each data set, in the columns and types of its card."""

import base64
import json
import pickle
import zlib

THOUGHT = "<think>Two and two.</think>The answer is \\boxed{4}."
PROGRAM = "print(int(input()) ** 2)"
CODE_THOUGHT = f"<think>Square it.</think>```python\n{PROGRAM}\n```"
PAIRS = json.dumps({"inputs": ["3\n", "4\n"], "outputs": ["9\n", "16\n"]})


def messages(text, role="user"):
    return [{"content": text, "role": role}]


def packed(cases):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def livecodebench_row(number, day):
    case = {"input": "3\n", "output": "9\n", "testtype": "stdin"}
    return {
        "question_title": f"Square {number}",
        "question_content": f"Print the square of n ({number}).",
        "platform": "atcoder",
        "question_id": f"abc{number}",
        "contest_id": f"abc{number}",
        "contest_date": day,
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([case]),
        "private_test_cases": packed([{**case, "input": "4\n", "output": "16\n"}]),
        "metadata": "{}",
    }


OPENR1 = {
    "problem": "What is 2 + 2?",
    "solution": "It is $4$.",
    "answer": "4",
    "problem_type": "Algebra",
    "question_type": "math-word-problem",
    "source": "olympiads",
    "uuid": "586fd646-76d6-5070-8c81-9993ab9d8559",
    "is_reasoning_complete": [True, True, True, False],
    "generations": [
        THOUGHT,
        "<think>Hm.</think>\\boxed{5}",
        "<think>Hm.</think>four",
        "<think>Two and",
    ],
    "correctness_math_verify": [True, False, False, False],
    "correctness_llama": [True, None, True, False],
    "finish_reasons": ["stop", "stop", "stop", "length"],
    "correctness_count": 2,
    "messages": [*messages("What is 2 + 2?"), *messages(THOUGHT, "assistant")],
}
OPENTHOUGHTS3 = {
    "difficulty": None,
    "source": "ai2-adapt-dev/openmath-2-math",
    "domain": "math",
    "conversations": [
        {"from": "human", "value": "What is 2 + 2?"},
        {"from": "gpt", "value": THOUGHT},
    ],
}
ACEREASON_SFT = {
    "category": "math",
    "source": "OpenMathReasoning",
    "input": "What is 2 + 2?",
    "output": THOUGHT,
}
NUMINAMATH_COT = {
    "source": "cn_k12",
    "problem": "What is 2 + 2?",
    "solution": "We get \\boxed{3}, no, $\\boxed{4}$.",
    "messages": [*messages("What is 2 + 2?"), *messages("\\boxed{4}", "assistant")],
}
NUMINAMATH_1_5 = {
    "problem": "What is 2 + 2?",
    "solution": "It is 4.",
    "answer": "4",
    "problem_type": "Algebra",
    "question_type": "math-word-problem",
    "problem_is_valid": "Yes",
    "solution_is_valid": "Yes",
    "source": "olympiads",
    "synthetic": False,
}
OPENCODEREASONING = {
    "id": "e862fb2e7f5e8b7dbe9a2d1d9a5a4d7b",
    "input": "Print the square of n.",
    "output": CODE_THOUGHT,
    "source": "codeforces",
    "license": "mit",
    "dataset": "code_contests",
    "split": "train",
    "difficulty": "7",
    "solution": PROGRAM,
}
TACO = {
    "question": "Print the square of n.",
    "solutions": json.dumps([PROGRAM, "n = int(input())\nprint(n * n)"]),
    "starter_code": "",
    "input_output": PAIRS,
    "difficulty": "MEDIUM",
    "raw_tags": "['maths']",
    "name": None,
    "source": "codewars",
    "tags": "['Mathematics']",
    "skill_types": "[]",
    "url": "https://example.org/1",
    "Expected Auxiliary Space": None,
    "time_limit": "2 seconds",
    "date": None,
    "picture_num": "0",
    "memory_limit": "256 megabytes",
    "Expected Time Complexity": None,
}
APPS = {
    "problem_id": 7,
    "question": "Print the square of n.",
    "solutions": json.dumps([PROGRAM]),
    "input_output": PAIRS,
    "difficulty": "interview",
    "url": "https://example.org/1",
    "starter_code": "",
}
CODEFORCES = {
    "id": "852/A",
    "aliases": ["853/B"],
    "contest_id": "852",
    "contest_name": "Contest 852",
    "contest_type": "ICPC",
    "contest_start": 1504535700,
    "contest_start_year": 2017,
    "index": "A",
    "time_limit": 1.0,
    "memory_limit": 256.0,
    "title": "Squares",
    "description": "Print the square of n.",
    "input_format": "One line with n.",
    "output_format": "Its square.",
    "interaction_format": None,
    "note": "Mind zero.",
    "examples": [{"input": "3\n", "output": "9\n"}],
    "editorial": None,
    "rating": 1900,
    "tags": ["math"],
    "testset_size": 3,
    "official_tests": [
        {"input": "3\n", "output": "9\n"},
        {"input": "4\n", "output": "16\n"},
        {"input": "123456789...", "output": "1524..."},
    ],
    "official_tests_complete": False,
    "input_mode": "stdio",
    "generated_checker": None,
    "executable": True,
    "generated_tests": 12,
}
SKYWORK_MATH = {
    "data_source": "train-math-deepscaler",
    "prompt": messages("What is 2 + 2?"),
    "ability": "math",
    "reward_model": {"ground_truth": '["4"]', "style": "rule"},
    "extra_info": {"index": 0, "model_difficulty": {"DeepSeek-R1-Distill-Qwen-7B": 5}},
}
SKYWORK_CODE = {
    "data_source": "train-code-taco-medium",
    "prompt": messages("Print the square of n."),
    "ability": "code",
    "reward_model": {"ground_truth": PAIRS, "style": "rule"},
    "extra_info": {"index": 0, "model_difficulty": {"DeepSeek-R1-Distill-Qwen-7B": 5}},
}
DEEPCODER = {
    "problem": "Print the square of n.",
    "solutions": [PROGRAM],
    "tests": json.dumps(
        [{"input": "3\n", "output": "9\n", "type": "stdin_stdout", "fn_name": None}]
    ),
}
KLEAR_MATH = {
    "data_source": "math_longcot_math_verify",
    "prompt": messages("What is 2 + 2?"),
    "ability": "math",
    "reward_model": {"ground_truth": "4", "style": "rule"},
    "__index_level_0__": "12",
}
KLEAR_CODE = {
    "hash": "0f1e2d",
    "ability": "code",
    "data_source": "coder1_longcot",
    "prompt": messages("Print the square of n."),
    "reward_model": {"ground_truth": PAIRS, "style": "rule"},
}

ROWS = {
    "openr1_math": OPENR1,
    "openthoughts3": OPENTHOUGHTS3,
    "acereason_sft": ACEREASON_SFT,
    "numinamath_cot": NUMINAMATH_COT,
    "numinamath_1_5": NUMINAMATH_1_5,
    "opencodereasoning": OPENCODEREASONING,
    "acereason_math": {"problem": "What is 2 + 2?", "answer": "4"},
    "deepscaler": {"problem": "What is 2 + 2?", "answer": "4", "solution": "Add them."},
    "skywork_or1_math": SKYWORK_MATH,
    "klear_math": KLEAR_MATH,
    "gsm8k": {"question": "What is 2 + 2?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
    "rows": {"question": "What is 2 + 2?", "answer": "4"},
    "taco": TACO,
    "apps": APPS,
    "codeforces": CODEFORCES,
    "skywork_or1_code": SKYWORK_CODE,
    "deepcoder": DEEPCODER,
    "klear_code": KLEAR_CODE,
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": 'def square(n):\n    """The square of n."""\n',
        "canonical_solution": "    return n * n\n",
        "test": "def check(candidate):\n    assert candidate(3) == 9\n",
        "entry_point": "square",
    },
    "mbpp": {
        "task_id": 11,
        "text": "Write a function to square a number.",
        "code": "def square(n):\n    return n * n",
        "test_list": ["assert square(3) == 9", "assert square(4) == 16"],
        "test_setup_code": "",
        "challenge_test_list": [],
    },
    "aime_2024": {
        "id": 60,
        "problem": "What is 2 + 2?",
        "solution": "Add them, which takes a while.",
        "answer": "004",
        "url": "https://example.org/1",
        "year": "2024",
    },
    "aime_2025": {
        "meta": {"unique_id": 0, "problem": "What is 2 + 2?", "solution": "4", "Part": 0},
        "messages": messages("What is 2 + 2?"),
    },
    "hmmt_feb_2025": {
        "problem_idx": 1,
        "problem": "What is 2 + 2?",
        "answer": "4",
        "problem_type": ["Algebra"],
    },
    "livecodebench": livecodebench_row(301, "2024-11-09T04:00:00"),
}
