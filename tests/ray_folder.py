"""The function that returns the folder of Ray's sessions; Ray has renamed it."""

from ray._common import utils

rays_own_folder = getattr(utils, "get_default_ray_temp_dir", None) or utils.get_ray_temp_dir
