-- Says that a shard has every row of the database.
-- KEYS  1 meta · 2 hold
-- ARGV  1 epoch · 2 loaded field · 3 since · 4 epoch in which the load was begun · 5 field of the present id · 6 the table's id
-- Answers 1, or 0 when what was deleted has been forgotten meanwhile, or rows may be lost: load again.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'forgotten', ARGV[5])
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if meta[4] and string.match(meta[4], '^%d+') ~= ARGV[6] then return 0 end
if meta[2] then return 1 end
if meta[1] ~= ARGV[4] or tonumber(meta[3] or '0') > tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('DEL', KEYS[2])
return 1
