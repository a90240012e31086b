"""The names that TensorFlow looks for in a plug-in."""

ENTRIES = ("SE_InitPlugin", "TF_InitKernel", "TF_InitGraph", "TF_InitProfiler")
#: The folder in which it looks for plug-ins.
FOLDER = "tensorflow-plugins"
