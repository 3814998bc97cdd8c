from gpu_control_plane.console.command_line import command

command(prog_name="python -m gpu_control_plane.console")
