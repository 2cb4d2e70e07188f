# What is not code: the embedded model, units, completions, the two commands of the README.
EXTRA_DIST += .ci/run contrib/DEVELOPING.md contrib/check contrib/setup.sh

# The embedded model. An uninstalled hearthd finds it in the source tree, an installed one under $(pkgdatadir).
modelsdir = $(pkgdatadir)/models
dist_models_DATA = contrib/models/tale-q4_k_m.gguf
EXTRA_DIST += contrib/vscode/README.md contrib/vscode/package.json contrib/vscode/tsconfig.json contrib/vscode/src/core.ts \
	contrib/vscode/src/extension.ts
EXTRA_DIST += contrib/emacs/README.md contrib/emacs/hearth.el
EXTRA_DIST += contrib/nvim/README.md contrib/nvim/lua/hearth/init.lua contrib/nvim/plugin/hearth.lua
EXTRA_DIST += contrib/neovim.md contrib/models/README.md contrib/train-tale.py contrib/quickstart

# Units and completions go where each program looks under our prefix.
systemdsystemunitdir = $(prefix)/lib/systemd/system
systemduserunitdir = $(prefix)/lib/systemd/user
sysusersdir = $(prefix)/lib/sysusers.d
dist_systemdsystemunit_DATA = contrib/systemd/system/hearthd.socket
nodist_systemdsystemunit_DATA = contrib/systemd/system/hearthd.service
dist_systemduserunit_DATA = contrib/systemd/user/hearthd.socket
nodist_systemduserunit_DATA = contrib/systemd/user/hearthd.service
dist_sysusers_DATA = contrib/systemd/system/hearth.conf
UNITS = $(nodist_systemdsystemunit_DATA) $(nodist_systemduserunit_DATA)
EXTRA_DIST += contrib/systemd/system/hearthd.service.in contrib/systemd/user/hearthd.service.in
CLEANFILES += $(UNITS)
$(UNITS): %: %.in Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && sed 's,[@]sbindir[@],$(sbindir),' $(srcdir)/$@.in >$@.tmp && mv $@.tmp $@

bashcompletiondir = $(datadir)/bash-completion/completions
zshcompletiondir = $(datadir)/zsh/site-functions
fishcompletiondir = $(datadir)/fish/vendor_completions.d
nodist_bashcompletion_DATA = contrib/completions/hearth
dist_zshcompletion_DATA = contrib/completions/_hearth
dist_fishcompletion_DATA = contrib/completions/hearth.fish
EXTRA_DIST += contrib/completions/hearth.bash
CLEANFILES += contrib/completions/hearth
contrib/completions/hearth: contrib/completions/hearth.bash
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $(srcdir)/contrib/completions/hearth.bash $@

# Packages for Debian: contrib/debian/build.
EXTRA_DIST += contrib/debian/build contrib/debian/changelog contrib/debian/control contrib/debian/copyright \
	contrib/debian/hearth-cuda.install contrib/debian/hearth-cuda.lintian-overrides \
	contrib/debian/hearth.install contrib/debian/hearth.lintian-overrides contrib/debian/libhearth-dev.install \
	contrib/debian/libhearth0.install contrib/debian/rules contrib/debian/source/format
