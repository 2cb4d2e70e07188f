-- :HearthChat [SESSION], :HearthSuggest; require('hearth').setup{} turns ghost text on.
vim.api.nvim_create_user_command('HearthChat', function(o) require('hearth').chat(o.args) end, { nargs = '?' })
vim.api.nvim_create_user_command('HearthSuggest', function() require('hearth').suggest() end, {})
