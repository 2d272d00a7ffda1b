"""Where Ray itself puts the folders of its sessions; it has renamed the function."""

from ray._common import utils

rays_own_folder = getattr(utils, "get_default_ray_temp_dir", None) or utils.get_ray_temp_dir
