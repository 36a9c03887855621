-- Compare-and-set of what is kept of a table beside its rows.
-- KEYS  1 tier
-- ARGV  1 epoch, not looked at · 2 field · 3 expected ("": nothing) · 4 new
-- Answers what is there then.
local found = redis.call('HGET', KEYS[1], ARGV[2]) or ''
if found ~= ARGV[3] then return found end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
return ARGV[4]
