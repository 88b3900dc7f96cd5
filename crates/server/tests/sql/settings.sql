set local work_mem = '8MB';
set local statement_timeout = 'soon';
set local nonsense = 1;
show work_mem;
set application_name = 'one';
begin;
set application_name = 'two';
savepoint s;
set application_name = 'three';
set local work_mem = '9MB';
show application_name;
rollback to s;
show application_name;
show work_mem;
set application_name = 'four';
savepoint u;
set application_name = 'five';
release u;
commit;
show application_name;
begin;
savepoint s;
set application_name = 'six';
select 1 / 0;
rollback to savepoint s;
show application_name;
set local application_name = 'seven';
show application_name;
commit;
show application_name;
begin;
set application_name = 'eight';
set local application_name = 'nine';
show application_name;
commit;
show application_name;
begin;
set local application_name = 'ten';
set application_name = 'eleven';
commit;
show application_name;
begin;
savepoint a;
set application_name = 'a';
savepoint b;
set application_name = 'b';
savepoint a;
set application_name = 'c';
rollback to a;
show application_name;
release a;
rollback to a;
show application_name;
rollback;
show application_name;
begin;
set my.own = 'x';
rollback;
show my.own;
begin;
set local my.tenant = '7';
show my.tenant;
rollback;
show my.tenant;
begin;
savepoint s;
set my.other = 'a';
rollback to s;
commit;
show my.other;
commit;
drop table if exists nobody;
create table if not exists again (a int);
create table if not exists again (a int);
drop table again;
set client_min_messages = warning;
drop table if exists nobody;
commit;
set client_min_messages = error;
drop table if exists nobody;
commit;
set local work_mem = '8MB';
show client_min_messages;
set client_min_messages = info;
commit;
drop table if exists nobody;
reset client_min_messages;
set datestyle = 'nonsense';
set datestyle = 'ISO, nonsense';
set datestyle = 'ISO, MDY';
show datestyle;
set datestyle = 'ISO, DMY, YMD';
set datestyle = ISO, MDY;
set work_mem = 'x';
set work_mem = '10 parsecs';
set work_mem = -1;
set work_mem = '8GB';
show work_mem;
set work_mem = '99999999GB';
set work_mem = 1.5;
reset work_mem;
set statement_timeout = -1;
set statement_timeout = '1.5min';
show statement_timeout;
set statement_timeout = 0;
set extra_float_digits = 10;
set extra_float_digits = +1;
show extra_float_digits;
set extra_float_digits = 1;
set lock_timeout = 'x';
set client_min_messages = 'loud';
set standard_conforming_strings = maybe;
set bytea_output = 'x';
set timezone = 'Nowhere/Land';
set standard_conforming_strings = off; --refused
set standard_conforming_strings = on;
set standard_conforming_strings = yes;
set intervalstyle = 'iso_8601'; --refused
set intervalstyle = 'nonsense';
set datestyle = 'German'; --refused
set datestyle = 'ISO, German';
set datestyle = 'ISO,, MDY';
reset datestyle;
set datestyle = 'ISO, European'; --refused
set datestyle = 'YMD, ISO'; --refused
set datestyle = DMY; --refused
set datestyle = 'ISO, us';
show datestyle;
select date '03/04/2024';
set default_tablespace = 'nosuch';
set default_tablespace = '';
set xmloption = 'x';
set backslash_quote = 'x';
set backslash_quote = 'yes';
set backslash_quote = off; --refused
set backslash_quote = '0'; --refused
set backslash_quote = safe_encoding;
set seq_page_cost = -1;
set seq_page_cost = 'x';
set seq_page_cost = 1.5;
show seq_page_cost;
set work_mem = '1.5MB';
show work_mem;
set work_mem = 100;
show work_mem;
set extra_float_digits = '1kB';
set extra_float_digits = 1.5;
show extra_float_digits;
set extra_float_digits = 0; --refused
set extra_float_digits = -15; --refused
set extra_float_digits = -16;
reset extra_float_digits;
show extra_float_digits;
show default_transaction_deferrable;
set session characteristics as transaction deferrable;
show default_transaction_deferrable;
set session characteristics as transaction not deferrable, isolation level serializable;
show default_transaction_isolation;
set session characteristics as transaction isolation level repeatable read;
show default_transaction_isolation;
begin;
show transaction_isolation;
select current_setting('transaction_isolation');
commit;
begin isolation level read uncommitted, read only, deferrable;
show transaction_isolation;
show transaction_deferrable;
show transaction_read_only;
savepoint s;
set transaction not deferrable;
rollback to s;
show transaction_isolation;
commit;
show transaction_deferrable;
set statement_timeout = +1000
show statement_timeout
set statement_timeout = +'1s'
set statement_timeout = + on
set statement_timeout = 0
create table plus (a int) with (fillfactor = +70)
create table plus2 (a int) with (fillfactor = +'70')
set time zone interval '-08:00' hour to minute--refused
reset time zone
