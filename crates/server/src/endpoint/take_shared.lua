-- Takes one request of the budget that a caller has on all servers: the generic cell rate algorithm, by this server's clock.
-- KEYS  1 when everything that was given is used up, in microseconds of Unix time
-- ARGV  1 epoch, not looked at · 2 what one request uses up · 3 how far ahead of the clock a caller may be before its request, both in microseconds
-- Answers {1, how far ahead it is then} or {0, how long until there is one}, in whole microseconds, rounded up.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, most = tonumber(ARGV[2]), tonumber(ARGV[3])
-- What a clock says that was ahead of this one is worth no more than an empty budget.
local used = math.min(tonumber(redis.call('GET', KEYS[1]) or 0), now + most + interval)
local ahead = math.max(used - now, 0)
if ahead > most then return { 0, math.ceil(ahead - most) } end
ahead = ahead + interval
redis.call('SET', KEYS[1], string.format('%.2f', now + ahead), 'PX', math.ceil(ahead / 1000) + 1)
return { 1, math.ceil(ahead) }
