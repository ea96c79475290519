"""Typed, strict parameters: one frozen record per notebook, checked before anything is computed."""

from klearlib.errors import did_you_mean as did_you_mean
from klearlib.params.data import SFTPhase as SFTPhase
from klearlib.params.fields import check_values as check_values
from klearlib.params.fields import parameters_cell as parameters_cell
from klearlib.params.files import SMOKE as SMOKE
from klearlib.params.files import STATISTICS as STATISTICS
from klearlib.params.files import files_of as files_of
from klearlib.params.files import is_real as is_real
from klearlib.params.files import load as load
from klearlib.params.files import load_profile as load_profile
from klearlib.params.files import profiles as profiles
from klearlib.params.files import require_profile as require_profile
from klearlib.params.files import uses_miniature as uses_miniature
from klearlib.params.files import worlds_of as worlds_of
from klearlib.params.options import LOCAL as LOCAL
from klearlib.params.options import VERL as VERL
from klearlib.params.options import DataOptions as DataOptions
from klearlib.params.options import FilterOptions as FilterOptions
from klearlib.params.options import RLOptions as RLOptions
from klearlib.params.project import root as root
from klearlib.params.real import RealParams as RealParams
from klearlib.params.worlds import CodeMiniatureParams as CodeMiniatureParams
from klearlib.params.worlds import DataMiniatureParams as DataMiniatureParams
from klearlib.params.worlds import JointMiniatureParams as JointMiniatureParams
from klearlib.params.worlds import MiniatureParams as MiniatureParams
