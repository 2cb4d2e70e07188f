# What is not code: the embedded model, units, completions, the two commands of the README.
EXTRA_DIST += .ci/run contrib/check contrib/setup.sh

# The embedded model. An uninstalled hearthd finds it in the source tree, an installed one under $(pkgdatadir).
modelsdir = $(pkgdatadir)/models
dist_models_DATA = contrib/models/tale-q4_k_m.gguf
EXTRA_DIST += contrib/models/README.md contrib/train-tale.py contrib/quickstart
