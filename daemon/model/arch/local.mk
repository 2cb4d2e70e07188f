# The architectures, one file each: this list is all the registration there is. A file x.c defines arch_x.
ARCHS = \
	daemon/model/arch/llama.c \
	daemon/model/arch/qwen2.c \
	daemon/model/arch/qwen3.c \
	daemon/model/arch/qwen3moe.c \
	daemon/model/arch/lfm2.c \
	daemon/model/arch/lfm2moe.c \
	daemon/model/arch/qwen35.c \
	daemon/model/arch/qwen35moe.c \
	daemon/model/arch/qwen3next.c \
	daemon/model/arch/mamba2.c \
	daemon/model/arch/granitehybrid.c \
	daemon/model/arch/nemotron_h.c \
	daemon/model/arch/nemotron_h_moe.c \
	daemon/model/arch/qwen2moe.c \
	daemon/model/arch/dots1.c \
	daemon/model/arch/gpt_oss.c \
	daemon/model/arch/glm4moe.c \
	daemon/model/arch/mistral3.c \
	daemon/model/arch/smollm3.c \
	daemon/model/arch/granite.c \
	daemon/model/arch/gemma2.c \
	daemon/model/arch/gemma3.c \
	daemon/model/arch/gemma4.c \
	daemon/model/arch/deepseek2.c \
	daemon/model/arch/phi3.c \
	daemon/model/arch/glm4.c \
	daemon/model/arch/starcoder2.c \
	daemon/model/arch/nemotron.c \
	daemon/model/arch/olmo2.c \
	daemon/model/arch/cohere2.c \
	daemon/model/arch/qwen2vl.c \
	daemon/model/arch/qwen3vl.c \
	daemon/model/arch/qwen3vlmoe.c \
	daemon/model/arch/gemma.c \
	daemon/model/arch/ernie4_5.c \
	daemon/model/arch/seed_oss.c \
	daemon/model/arch/exaone4.c \
	daemon/model/arch/granitemoe.c \
	daemon/model/arch/olmoe.c \
	daemon/model/arch/arcee.c

EXTRA_DIST += daemon/model/arch/README.md
daemon_libmodel_a_SOURCES += daemon/model/arch/arch.c daemon/model/arch/arch.h daemon/model/arch/parts.c daemon/model/arch/experts.c daemon/model/arch/recurrent.c $(ARCHS)

# The table, made of the list.
BUILT_SOURCES += daemon/model/arch/list.h
CLEANFILES += daemon/model/arch/list.h
daemon/model/arch/list.h: Makefile
	$(AM_V_GEN)$(MKDIR_P) daemon/model/arch && \
	{ names=`for f in $(ARCHS); do basename $$f .c; done`; \
	  for n in $$names; do echo "extern const struct arch arch_$$n;"; done; \
	  echo "static const struct arch *const archs[] = {"; \
	  for n in $$names; do echo "    &arch_$$n,"; done; \
	  echo "};"; } >$@.new && if cmp -s $@.new $@; then rm $@.new; touch $@; else mv $@.new $@; fi
daemon/model/arch/libmodel_a-arch.$(OBJEXT): daemon/model/arch/list.h
